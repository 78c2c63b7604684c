//! Pulse of an engine's thread: shows when the thread has nothing left to do.

use std::io;
use std::sync::{Arc, Mutex};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, oneshot};

use crate::mutex::lock;

/// Pulse of one engine's thread, which it outlives.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    asking: Mutex<Asking>,
    knock: Notify,
}

/// Who wants to know.
#[derive(Debug, Default)]
struct Asking {
    /// The thread has not come round to these yet.
    new: Vec<oneshot::Sender<()>>,
    /// To be answered when the thread goes to sleep: it has seen all that happened before they asked.
    seen: Vec<oneshot::Sender<()>>,
    ended: bool,
}

impl Pulse {
    /// The runtime for an engine's thread.
    pub(super) fn runtime(self: &Arc<Self>) -> io::Result<Runtime> {
        let parked = Arc::clone(self);
        let runtime = Builder::new_current_thread()
            .enable_all()
            .on_thread_park(move || parked.parked())
            .build()?;
        let beat = Beat(Arc::clone(self));
        runtime.spawn(async move {
            loop {
                beat.0.knock.notified().await;
                beat.0.knocked();
            }
        });
        Ok(runtime)
    }

    /// Completes once the thread has done all it can do now, and sleeps; or has ended.
    pub(super) async fn idle(&self) {
        let (reply, answer) = oneshot::channel();
        {
            let mut asking = lock(&self.asking);
            if asking.ended {
                return;
            }
            asking.new.push(reply);
        }
        self.knock.notify_one();
        let _ = answer.await; // or the thread has ended, which is as idle as it gets
    }

    pub(super) fn has_ended(&self) -> bool {
        lock(&self.asking).ended
    }

    fn knocked(&self) {
        let mut asking = lock(&self.asking);
        let new = std::mem::take(&mut asking.new);
        asking.seen.extend(new);
    }

    fn parked(&self) {
        let seen = std::mem::take(&mut lock(&self.asking).seen);
        for reply in seen {
            let _ = reply.send(()); // who asked may have gone
        }
    }
}

/// Ends with the runtime.
struct Beat(Arc<Pulse>);

impl Drop for Beat {
    fn drop(&mut self) {
        let mut asking = lock(&self.0.asking);
        asking.ended = true;
        let told = (std::mem::take(&mut asking.new), std::mem::take(&mut asking.seen));
        drop(asking);
        drop(told); // which wakes those who asked, and they may ask again
    }
}
