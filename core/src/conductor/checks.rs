//! Checks: read-only views of a core, for tests and the simulator.

use super::{Core, Exchange};
#[cfg(feature = "simulation")]
use crate::contender::Contender;
use crate::ids::{CallId, Incarnation, Key, RequestId};
#[cfg(feature = "simulation")]
use crate::session::Session;

impl Core {
    /// Returns the contenders, each with its name.
    #[cfg(feature = "simulation")]
    pub fn contenders(&self) -> impl Iterator<Item = (&Key, &Contender)> {
        let all = self.names.iter();
        all.flat_map(|(_, name)| {
            name.contenders.values().map(move |contender| (&name.text, contender))
        })
    }

    #[cfg(feature = "simulation")]
    pub fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.sessions.all.values()
    }

    /// Returns the calls that wait for a name, in order.
    pub fn waiters(&self, name: &str) -> Vec<CallId> {
        let mut names = self.names.iter().filter(|(_, it)| &*it.text == name);
        names.next().into_iter().flat_map(|(_, it)| it.waiters.values().copied()).collect()
    }

    /// Returns the victim and the keys of the cycle that this request is to break, if it is an abort.
    pub fn abort_under_way(&self, request: RequestId) -> Option<(CallId, Vec<Incarnation>)> {
        match self.under_way.get(&request)? {
            Exchange::Abort(call, _, cycle) => Some((*call, cycle.keys.clone())),
            _ => None,
        }
    }

    /// Returns the number of timers and of exchanges under way.
    pub fn pending(&self) -> (usize, usize) {
        (self.timers.len(), self.under_way.len())
    }

    /// Describes what is left although no call wants anything; `None`: nothing.
    pub fn leftovers(&self) -> Option<String> {
        let names: Vec<&Key> = self.names.iter().map(|(_, name)| &name.text).collect();
        let is_idle = self.view.is_idle()
            && self.searches.all.is_empty()
            && !self.has_deletes()
            && self.calls.is_empty();
        (!is_idle || !names.is_empty()).then(|| format!("{names:?} {:?}", self.calls))
    }
}
