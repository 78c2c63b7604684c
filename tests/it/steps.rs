//! Single polls: a future is dropped at each of its await points.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Moment at which a future is dropped after its last poll.
#[derive(Debug, Clone, Copy)]
pub(crate) enum When {
    /// Right after the last poll: its request is on the way.
    AtOnce,
    /// When it is woken after the last poll: the response has arrived, but the future does not read it.
    WhenWoken,
}

/// Polls the future `polls` times, each time when it is woken, then drops it. Returns its output if it completed before.
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
