//! What a test kit asks an engine: which names it holds, which are waited for; and to look, now, whether they still are.

use std::fmt;
use std::sync::{Arc, Weak};

use tokio::sync::oneshot;

use super::driver::{Driver, Told};
use super::{Engine, Shared};
use crate::core::queue::Slot;
use crate::core::{Input, Timer};
use crate::name::Name;

/// A look at an engine's insides, on its thread.
pub(super) struct Probe(Box<dyn FnOnce(&mut Driver) + Send>);

/// The names of an engine's calls, one entry for each name of each call.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Held, and not lost.
    pub(crate) held: Vec<String>,
    /// Waited for: behind another call of this process, behind another process, or for etcd.
    pub(crate) waiting: Vec<String>,
}

/// A handle that does not keep its engine alive.
#[derive(Debug, Clone)]
pub(crate) struct WeakEngine(Weak<Shared>);

impl WeakEngine {
    /// The engine, unless nobody else has a handle on it any more.
    pub(crate) fn upgrade(&self) -> Option<Engine> {
        self.0.upgrade().map(Engine)
    }
}

impl Probe {
    pub(super) fn carry_out(self, engine: &mut Driver) {
        (self.0)(engine);
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Probe")
    }
}

impl Engine {
    pub(crate) fn downgrade(&self) -> WeakEngine {
        WeakEngine(Arc::downgrade(&self.0))
    }

    /// The names of its calls; none, if it has ended.
    pub(crate) async fn names(&self) -> Names {
        let (reply, answer) = oneshot::channel();
        self.probe(move |engine| {
            let _ = reply.send(engine.names()); // who asked may have gone
        });
        answer.await.unwrap_or_default()
    }

    /// Has the engine look at what it holds, as it does anyway from the first second of holding on (rule P18).
    pub(crate) fn look(&self) {
        self.probe(Driver::look);
    }

    fn probe(&self, probe: impl FnOnce(&mut Driver) + Send + 'static) {
        let _ = self.send(Told::Probe(Probe(Box::new(probe)))); // an engine that has ended has nothing to show
    }
}

impl Driver {
    fn names(&self) -> Names {
        let texts = |names: &mut dyn Iterator<Item = &Name>| -> Vec<String> {
            names.filter_map(Name::text).map(str::to_owned).collect()
        };
        let held = self.held.values().filter(|tenure| tenure.lost().is_none());
        Names {
            held: texts(&mut held.flat_map(|tenure| tenure.locks().map(|lock| &lock.name))),
            waiting: texts(&mut self.waiting.values().flat_map(|(names, _)| names)),
        }
    }

    fn look(&mut self) {
        let now = self.clock.now();
        let queues = self.core.queues.iter();
        let held = queues.filter(|(_, queue)| matches!(queue.slot, Slot::Held { .. }));
        let timers: Vec<_> = held
            .map(|(name, _)| (now, Timer::Guard(name.clone())))
            .collect();
        self.core.timers.extend(timers);
        self.tell(Input::Tick);
    }
}
