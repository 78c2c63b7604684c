//! Pulse of an engine's thread: shows when the thread is idle.

use std::future::pending;
use std::io;
use std::sync::{Arc, OnceLock};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;

/// Pulse of one engine's thread, which it outlives: the runtime's handle, and a channel. The channel changes whenever the thread goes to
/// sleep, and closes with the runtime.
#[derive(Debug, Default)]
pub(super) struct Pulse(OnceLock<(Handle, watch::Receiver<()>)>);

impl Pulse {
    /// Creates the runtime for an engine's thread.
    pub(super) fn runtime(&self) -> io::Result<Runtime> {
        let (sleeps, slept) = watch::channel(());
        let sleeps = Arc::new(sleeps);
        let asleep = Arc::downgrade(&sleeps);
        let runtime = Builder::new_current_thread()
            .enable_all()
            .on_thread_park(move || {
                asleep.upgrade().inspect(|sleeps| sleeps.send_replace(()));
            })
            .build()?;
        let _ = self.0.set((runtime.handle().clone(), slept)); // once
        runtime.spawn(async move {
            let _until_the_end = sleeps;
            pending::<()>().await;
        });
        Ok(runtime)
    }

    /// Waits until the thread has done everything that it can do now and sleeps, or has ended.
    pub(super) async fn idle(&self) {
        let Some((thread, slept)) = self.0.get() else { return };
        let mut slept = slept.clone();
        // A task that is spawned on the thread runs after everything that has happened there before.
        let since = thread.spawn(async move {
            slept.mark_unchanged();
            slept
        });
        if let Ok(mut slept) = since.await {
            let _ = slept.changed().await; // an error means that the thread has ended, so it is idle too
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.0.get().is_some_and(|(_, slept)| slept.has_changed().is_err())
    }
}
