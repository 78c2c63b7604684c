//! Tests of the checker: tiny histories, each with one verdict.
//!
//! A history is text. Each event has its time in milliseconds, a verb, the process or call it concerns, and details:
//! `0-10 holds 1.1 token=7` is a body of call 1 of process 1, from its begin to its end. Without `on=`, a call is for `hot/0`.

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
use crate::history::{Asked, Ending, Event, FaultBegun, Mode, Outcome, Said, Taken, What};

struct Words<'a> {
    from: u64,
    /// Second time of a range.
    to: u64,
    what: &'a str,
    whom: &'a str,
    details: Vec<&'a str>,
}

impl<'a> Words<'a> {
    fn of(text: &'a str) -> Self {
        let mut words = text.split_whitespace();
        let mut next = || words.next().unwrap_or_default();
        let (time, what, whom) = (next(), next(), next());
        let (from, to) = time.split_once('-').unwrap_or((time, time));
        let time = |text: &str| text.parse().unwrap_or_else(|_| panic!("no time: {text}"));
        Self { from: time(from), to: time(to), what, whom, details: words.collect() }
    }

    fn detail(&self, key: &str) -> Option<&'a str> {
        self.details.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }

    fn number<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        self.detail(key)?.parse().ok()
    }

    fn has(&self, word: &str) -> bool {
        self.details.contains(&word)
    }

    fn names(&self) -> Vec<String> {
        self.detail("on").unwrap_or("hot/0").split(',').map(str::to_owned).collect()
    }

    fn asked(&self) -> Asked {
        let permits = self.number("permits").map(Mode::Permits);
        let mode = if self.has("shared") { Mode::Shared } else { Mode::Exclusive };
        Asked {
            kind: self.detail("kind").unwrap_or("exclusive").to_owned(),
            names: self.names(),
            mode: permits.unwrap_or(mode),
            wait: (!self.has("patient")).then(|| self.number("wait").unwrap_or(10_000)),
            ttl: self.number("ttl").unwrap_or(2_000),
            min_hold: self.number("min_hold").unwrap_or(0),
            under: self.number("under"),
        }
    }

    /// Returns how a call returned: `busy`, or `Gone` for a lock lost with that cause.
    fn outcome(&self) -> Outcome {
        match self.details.first() {
            Some(&"busy") => Outcome::Busy,
            Some(&"deadlock") => Outcome::Deadlock,
            Some(&"refused") => Outcome::Refused("etcd failed".to_owned()),
            Some(&"gave_up") => Outcome::Dropped,
            Some(cause) => Outcome::Lost((*cause).to_owned()),
            None => Outcome::Done,
        }
    }

    /// Returns the beginning of a fault: of the worker in a slot, of a key on a name, or of a key of a process.
    fn fault(&self, fault: u32) -> What {
        let owner = self.number("owner").map(Some);
        What::FaultBegun(FaultBegun {
            fault,
            kind: self.whom.replace('_', " ").try_into().expect("a kind of fault"),
            target: String::new(),
            names: self.detail("on").map_or(Vec::new(), |_| self.names()),
            worker: self.number("slot"),
            taken: owner.map(|owner| Taken { owner, older: self.number("older").unwrap_or(0) }),
        })
    }

    /// Returns the events, each with its time. A token is the time of the begin, unless the text has one.
    fn events(&self, fault: u32) -> Vec<(u64, What)> {
        let (from, to) = (self.from, self.to);
        let (process, call) = self.whom.split_once('.').unwrap_or((self.whom, ""));
        // Events without a process or a call have 0.
        let (process, call) = (process.parse().unwrap_or(0), call.parse().unwrap_or(0));
        let token = self.number("token").unwrap_or(from as i64);
        let keys = self.whom.split(',').filter(|key| !key.is_empty()).map(str::to_owned).collect();
        let said = |at, said| (at, What::Said { process, said });
        let asks = said(from, Said::Asked { call, asked: self.asked() });
        let tokens = self.names().into_iter().map(|name| (name, token)).collect();
        let begins = said(from, Said::Begun { call, held: true, tokens });
        let polls = |held| said(to, Said::Polled { call, held });
        let ended = |held, how| said(to, Said::Ended { call, held, how });
        let done = || ended(true, Ending::Done);
        let returns = |at, result| said(at, Said::Returned { call, result });
        match self.what {
            "asks" => vec![asks],
            "begins" => vec![begins],
            "enters" => vec![asks, begins],
            "polls" => vec![polls(!self.has("lost"))],
            "ended" => vec![done()],
            "ends" => vec![done(), returns(to + 1, Outcome::Done)],
            "ends_dropped" => vec![ended(self.has("held"), Ending::Dropped)],
            "returns" => vec![returns(to, self.outcome())],
            "holds" => vec![asks, begins, done(), returns(to + 1, Outcome::Done)],
            "loses" => {
                let dropped = ended(false, Ending::Dropped);
                vec![asks, begins, polls(true), dropped, returns(to + 1, self.outcome())]
            }
            "refuses" => {
                let (name, accepted) = ("hot/0".to_owned(), false);
                vec![(from, What::Written { process, call, name, token, accepted })]
            }
            "fault" => vec![(from, self.fault(fault)), (to, What::FaultHealed { fault })],
            "missed" => vec![(from, What::FaultMissed { fault: 0 })],
            "rewound" => vec![(from, What::Rewound { fault: 0 })],
            "starts" => vec![(from, What::Started { process, slot: process })],
            "stops" => vec![(from, What::Stopped { process }), (to, What::Continued { process })],
            "stalls" => vec![said(to, Said::Stalled { since: ms(from) })],
            "silent" => vec![(to, What::Silent { since: ms(from) })],
            "killed" => vec![(from, What::Killed { process })],
            "exits" => {
                let hung = self.has("hung");
                vec![(from, What::Exited { process, well: false, hung })]
            }
            "logs" => {
                let (level, text) = ("WARN".to_owned(), self.details.join(" "));
                vec![said(from, Said::Logged { level, text })]
            }
            "drained" => {
                let left = self.number("left").unwrap_or(0);
                vec![said(from, Said::Drained { left, leases: 0 })]
            }
            "left" => vec![(from, What::Left { keys })],
            "idle" => vec![(from, What::Idle { keys })],
            "draining" => vec![(from, What::Draining)],
            "over" => vec![(from, What::Over)],
            other => panic!("no event: {other}"),
        }
    }
}

/// Parses the text of a history; sorts the events by time.
fn history(text: &str) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    let mut faults = 0;
    for part in text.split(';').filter(|part| !part.trim().is_empty()) {
        let words = Words::of(part);
        let said = words.events(faults);
        faults += u32::from(words.what == "fault");
        events.extend(said.into_iter().map(|(at, what)| Event { at: ms(at), what }));
    }
    events.sort_by_key(|event| event.at);
    events
}

fn judged(text: &str) -> Verdicts {
    judge(&history(text))
}

/// Asserts that this promise is broken, and only this one.
fn breaks(text: &str, breach: Breach) {
    let verdicts = judged(text);
    let breaches: Vec<_> = verdicts.violations.iter().map(|it| it.breach).collect();
    let only = breaches.iter().all(|it| *it == breach);
    assert!(!breaches.is_empty() && only, "{text}: {verdicts:#?}");
}

/// Asserts that no promise is broken; returns the measurements.
fn holds(text: &str) -> Verdicts {
    let verdicts = judged(text);
    assert!(verdicts.violations.is_empty(), "{text}: {verdicts:#?}");
    verdicts
}

fn count(text: &str, breach: Breach) -> usize {
    judged(text).counts().get(&breach).copied().unwrap_or(0)
}

/// Asserts that one overlap is measured, with this kind of fault and length in milliseconds, and that none is a violation.
fn excused(text: &str, kind: &str, lasts: u64) {
    let removed = Vec::from_iter(holds(text).measured.removed_by);
    assert_eq!(removed, [(kind.to_owned(), vec![ms(lasts)])], "{text}");
}
