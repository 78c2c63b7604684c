//! Wakers of users: while one blocks, the engine continues.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake};
use std::thread;

use etcd_locked::testing;

use crate::service::secs;

/// Waker that blocks the thread that wakes it, until the test releases it.
struct Blocks {
    begun: Sender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Wake for Blocks {
    fn wake(self: Arc<Self>) {
        self.begun.send(()).expect("the test waits for it");
        let go_on = self.go_on.lock().expect("one thread at a time wakes it");
        go_on.recv().expect("the test lets it go on");
    }
}

#[tokio::test]
async fn waker_that_blocks_delays_no_renewal() {
    let etcd = testing::start().await.unwrap();
    let renewed = etcd.locks().lock("orders/1").await.unwrap();
    let handed_over = etcd.locks().lock("orders/7").await.unwrap();
    let (begun, has_begun) = channel();
    let (let_go, go_on) = channel();
    let go_on = Mutex::new(go_on);
    let waker = Arc::new(Blocks { begun, go_on }).into();
    let mut waiting = pin!(etcd.locks().lock("orders/7").into_future());
    let polled = waiting.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    etcd.advance(secs(0)).await; // the engine's thread is idle, so the releasing thread hands over

    let releases = thread::spawn(move || drop(handed_over));
    has_begun.recv().unwrap();
    etcd.advance(secs(60)).await; // four TTLs
    assert!(renewed.is_held());

    let_go.send(()).unwrap();
    releases.join().unwrap();
    let polled = waiting.as_mut().poll(&mut Context::from_waker(&waker));
    assert_matches!(polled, Poll::Ready(Ok(_)));
}
