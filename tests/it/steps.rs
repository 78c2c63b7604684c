//! Dropping a future at every await point, without picking the points by hand.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// When a future that has been polled often enough is dropped.
#[derive(Debug, Clone, Copy)]
pub(crate) enum When {
    /// Right after its last poll: what it asked for is on its way.
    AtOnce,
    /// When it is woken after its last poll: what it asked for has arrived and is not looked at any more.
    WhenWoken,
}

/// Polls the future `polls` times, each time when it is woken, then drops it; its output if it was done before.
pub(crate) async fn poll_then_drop<F: Future>(
    polls: usize,
    when: When,
    future: F,
) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 && matches!(when, When::AtOnce) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
