//! Deadlock: cycles of calls that wait for each other, found and cut (rule P38).
//!
//! Inside the process a cycle is found by walking its own calls ([`graph`]). Across processes a nested call whose wait has
//! stalled publishes *edges* ([`edges`]): small keys that lead from each key its task holds to the waiting key it depends on. A
//! search ([`search`]) reads contenders and edges until it is back where it began. The cycle is cut by one transaction that
//! deletes the victim's edges if every key of the cycle is still as it was read: no call is refused for a cycle that is not there,
//! and of two aborts of one cycle one succeeds. A group whose task holds nothing steps back instead.

pub mod edges;
pub mod graph;
pub mod search;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::{CallId, ContenderId, Incarnation};
use crate::moment::Moment;
pub use edges::{Edge, Edges};
pub use search::{Cycle, Search};

/// How long a call, and the contender it depends on, must have waited before it does anything about cycles; and how long between
/// two steps of that.
pub const STEP: Duration = Duration::from_secs(1);

/// From this step on the call with the youngest waiting key of a cycle cuts it.
const YOUNGEST: u32 = 2;

/// From this step on any call does.
const ANY: u32 = 4;

/// A search that is under way.
#[derive(Debug)]
struct Running {
    search: Search,
    under_way: bool,
}

/// What this process knows and does about deadlocks.
#[derive(Debug, Default)]
pub struct Deadlock {
    pub edges: Edges,
    /// Steps that each call has taken.
    steps: BTreeMap<CallId, u32>,
    /// One search at a time for each waiting contender, whichever calls depend on it.
    searches: BTreeMap<ContenderId, Running>,
    last_search: BTreeMap<ContenderId, Moment>,
}

impl Deadlock {
    /// A call takes its next step.
    pub fn step(&mut self, call: CallId) -> u32 {
        let step = self.steps.entry(call).or_default();
        *step += 1;
        *step
    }

    /// A call does not wait any more.
    pub fn forget_call(&mut self, call: CallId) {
        self.steps.remove(&call);
        self.edges.release(call);
    }

    /// A contender does not wait any more.
    pub fn forget_contender(&mut self, contender: ContenderId) {
        self.searches.remove(&contender);
        self.last_search.remove(&contender);
    }

    /// Begins a search from a waiting contender's key, unless one is under way, or has just ended.
    pub fn begin_search(
        &mut self,
        now: Moment,
        contender: ContenderId,
        root: &str,
        prefix: &str,
        start: Incarnation,
    ) {
        let recent = self
            .last_search
            .get(&contender)
            .is_some_and(|at| now - *at < STEP / 2);
        if !recent && !self.searches.contains_key(&contender) {
            let running = Running {
                search: Search::new(root, prefix, start),
                under_way: false,
            };
            self.searches.insert(contender, running);
            self.last_search.insert(contender, now);
        }
    }

    /// The next read of a search, if one is to be sent.
    pub fn next_read(&mut self) -> Option<(ContenderId, Vec<crate::request::Op>)> {
        let (id, running) = self
            .searches
            .iter_mut()
            .find(|(_, running)| !running.under_way)?;
        running.under_way = true;
        Some((*id, running.search.reads()))
    }

    /// A read of a search was answered; the cycle it has found, if it has.
    pub fn found(
        &mut self,
        contender: ContenderId,
        answer: crate::request::TxnAnswer,
    ) -> Option<Cycle> {
        let running = self.searches.get_mut(&contender)?;
        running.under_way = false;
        match running.search.answered(answer) {
            search::Progress::Reads => None,
            search::Progress::Nothing => {
                self.searches.remove(&contender);
                None
            }
            search::Progress::Found(cycle) => {
                self.searches.remove(&contender);
                Some(cycle)
            }
        }
    }

    /// A read of a search had no answer: the next step begins anew.
    pub fn search_failed(&mut self, contender: ContenderId) {
        self.searches.remove(&contender);
    }

    /// Whether this cycle is for a call of this process to cut now. A group that is part of it is left the time to step back.
    pub fn is_ours_to_cut(&self, call: CallId, cycle: &Cycle) -> bool {
        let step = self.steps.get(&call).copied().unwrap_or(0);
        step >= ANY || (step >= YOUNGEST && cycle.begins_with_youngest() && !cycle.has_group())
    }

    /// Whether nothing is kept of any call.
    pub fn is_idle(&self) -> bool {
        self.steps.is_empty() && self.edges.is_empty()
    }
}
