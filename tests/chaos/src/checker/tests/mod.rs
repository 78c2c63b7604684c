//! Tests of the checker: tiny histories, each with one verdict.

mod answers;
mod bounds;
mod exclusion;
mod liveness;
mod order;
mod remains;
mod removals;
mod tokens;
mod validity;

use super::judge;
use super::verdicts::{Breach, Verdicts};
use crate::clock::ms;
use crate::history::{Asked, Ending, Event, Mode, Outcome, Said, Taken, What};
use crate::schedule::Kind;

/// A history in the making. Times are in milliseconds.
#[derive(Default)]
pub(crate) struct Story(Vec<Event>);

impl Story {
    fn add(mut self, at: u64, what: What) -> Self {
        self.0.push(Event { at: ms(at), what });
        self
    }

    fn says(self, at: u64, process: u32, said: Said) -> Self {
        self.add(at, What::Said { process, said })
    }

    fn asks_as(self, at: u64, process: u32, call: u64, asked: Asked) -> Self {
        self.says(at, process, Said::Asked { call, asked })
    }

    fn asks(self, at: u64, process: u32, call: u64) -> Self {
        self.asks_as(at, process, call, asked(&["hot/0"], Mode::Exclusive))
    }

    fn begins(self, at: u64, process: u32, call: u64, token: i64) -> Self {
        let tokens = vec![("hot/0".to_owned(), token)];
        let held = true;
        self.says(at, process, Said::Begun { call, held, tokens })
    }

    fn polls(self, at: u64, process: u32, call: u64, held: bool) -> Self {
        self.says(at, process, Said::Polled { call, held })
    }

    fn ends(self, at: u64, process: u32, call: u64) -> Self {
        let (held, how) = (true, Ending::Done);
        self.says(at, process, Said::Ended { call, held, how }).returns(
            at + 1,
            process,
            call,
            Outcome::Done,
        )
    }

    fn returns(self, at: u64, process: u32, call: u64, result: Outcome) -> Self {
        self.says(at, process, Said::Returned { call, result })
    }

    /// A body of one call, from its begin to its end.
    pub(crate) fn holds(self, from: u64, to: u64, process: u32, call: u64, token: i64) -> Self {
        self.asks(from, process, call).begins(from, process, call, token).ends(to, process, call)
    }

    pub(crate) fn fault(self, from: u64, to: u64, kind: &str, names: &[&str]) -> Self {
        let fault = 0;
        let begun = What::FaultBegun {
            fault,
            kind: named(kind),
            target: String::new(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            worker: None,
            taken: None,
        };
        self.add(from, begun).add(to, What::FaultHealed { fault })
    }

    /// A fault of the worker in a slot.
    fn fault_of(self, from: u64, to: u64, kind: &str, slot: u32) -> Self {
        let fault = 0;
        let begun = What::FaultBegun {
            fault,
            kind: named(kind),
            target: format!("worker {slot}"),
            names: Vec::new(),
            worker: Some(slot),
            taken: None,
        };
        self.add(from, begun).add(to, What::FaultHealed { fault })
    }

    /// An operator takes a key of `hot/0` of this process, of whose name so many keys are older.
    fn takes(self, at: u64, kind: &str, owner: u32, older: usize) -> Self {
        let fault = 0;
        let taken = Taken { owner: Some(owner), older };
        let begun = What::FaultBegun {
            fault,
            kind: named(kind),
            target: String::new(),
            names: vec!["hot/0".to_owned()],
            worker: None,
            taken: Some(taken),
        };
        self.add(at, begun).add(at, What::FaultHealed { fault })
    }

    /// A process in the slot of its number.
    fn starts(self, at: u64, process: u32) -> Self {
        let slot = process;
        self.add(at, What::Started { process, slot })
    }

    /// A body that is lost by this cause.
    fn loses(self, from: u64, to: u64, process: u32, call: u64, cause: &str) -> Self {
        let (held, how) = (false, Ending::Dropped);
        self.asks(from, process, call)
            .begins(from, process, call, 1)
            .polls(to, process, call, true)
            .says(to, process, Said::Ended { call, held, how })
            .returns(to + 1, process, call, Outcome::Lost(cause.to_owned()))
    }

    /// A process that is stopped meanwhile.
    fn stops(self, from: u64, to: u64, process: u32) -> Self {
        self.add(from, What::Stopped { process }).add(to, What::Continued { process })
    }

    /// The machine does not run a worker meanwhile.
    fn stalls(self, from: u64, to: u64, process: u32) -> Self {
        self.says(to, process, Said::Stalled { since: ms(from) })
    }

    /// Its events, in the order of time.
    pub(crate) fn sorted(mut self) -> Vec<Event> {
        self.0.sort_by_key(|event| event.at);
        self.0
    }

    fn judged(mut self) -> Verdicts {
        self.0.sort_by_key(|event| event.at);
        judge(&self.0)
    }

    /// Asserts that this promise is broken, and no other.
    fn breaks(self, breach: Breach) {
        let verdicts = self.judged();
        let breaches: Vec<_> = verdicts.violations.iter().map(|it| it.breach).collect();
        assert!(!breaches.is_empty() && breaches.iter().all(|it| *it == breach), "{verdicts:#?}");
    }

    fn holds_all(self) {
        let verdicts = self.judged();
        assert!(verdicts.violations.is_empty(), "{verdicts:#?}");
    }
}

/// The kind of fault with this name.
fn named(kind: &str) -> Kind {
    Kind::try_from(kind.to_owned()).expect("a kind of fault")
}

/// What was lost, as the checker measures it.
fn removed(verdicts: &Verdicts) -> Vec<(&str, &[u64])> {
    let removed = verdicts.removed.iter();
    removed.map(|(kind, lasted)| (kind.as_str(), lasted.as_slice())).collect()
}

fn asked(names: &[&str], mode: Mode) -> Asked {
    Asked {
        kind: "exclusive".to_owned(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        mode,
        wait: Some(10_000),
        ttl: 2_000,
        at_least: 0,
        under: None,
    }
}
