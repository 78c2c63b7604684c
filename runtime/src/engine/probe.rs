//! Probe: the test kit's view of an engine, with the names that it holds and those for which calls wait.

use std::sync::Arc;

use etcd_locked_core::Input;
use tokio::sync::oneshot;

use super::driver::{Command, Driver};
use super::handle::Engine;
use super::ownership::OwnedLocks;
use crate::values::Name;

/// Names of an engine's calls, one entry for each name of each call.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Held or kept, and not lost.
    pub(crate) held: Vec<String>,
    /// Waited for: behind another call of this process, behind another process, or for etcd.
    pub(crate) waiting: Vec<String>,
}

impl Engine {
    /// Returns the names of its calls; empty if it has ended.
    pub(crate) async fn names(&self) -> Names {
        let (reply, answer) = oneshot::channel();
        self.probe(move |engine| {
            let held = engine.held.values().map(|held| Arc::clone(&held.locks));
            let held: Vec<Arc<OwnedLocks>> = held.collect();
            let waiting = texts(engine.waiting.values().flat_map(|(names, _)| names.iter()));
            let kept = texts(engine.kept.names());
            engine.later(move || {
                let held = held.iter().filter(|locks| locks.are_held());
                let mut held = texts(held.flat_map(|locks| locks.locks().map(|lock| &lock.name)));
                held.extend(kept);
                let _ = reply.send(Names { held, waiting }); // the requester may be gone
            });
        });
        answer.await.unwrap_or_default()
    }

    /// Makes the engine read the names that it holds, as it does anyway after the first second of holding (rule P18).
    pub(crate) fn read_held(&self) {
        self.probe(|engine| engine.step(Input::Inspect));
    }

    fn probe(&self, probe: impl FnOnce(&mut Driver) + Send + 'static) {
        let _ = self.submit(Command::Inspect(Box::new(probe))); // an engine that has ended has nothing to show
    }
}

fn texts<'a>(names: impl Iterator<Item = &'a Name>) -> Vec<String> {
    names.filter_map(Name::text).map(str::to_owned).collect()
}
