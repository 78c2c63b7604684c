//! Calls of a history: everything known about each, gathered from its events.

use std::collections::BTreeMap;

use crate::history::{Asked, Ending, Event, Mode, Outcome, Said, What};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CallId {
    pub(crate) process: u32,
    pub(crate) call: u64,
}

impl std::fmt::Display for CallId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.process, self.call)
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Call {
    pub(crate) id: CallId,
    pub(crate) asked_at: u64,
    pub(crate) asked: Asked,
    pub(crate) begun: Option<Begun>,
    /// Times at which its body began again.
    pub(crate) again: Vec<u64>,
    /// Time of the last poll in which the guard said that the lock is held.
    pub(crate) held_until: u64,
    /// Times of polls in which the guard said that the lock is lost.
    pub(crate) late: Vec<u64>,
    pub(crate) ended: Option<(u64, Ending)>,
    pub(crate) returned: Option<(u64, Outcome)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Begun {
    pub(crate) at: u64,
    /// True if the guard said that the lock was held after the body's first poll had begun.
    pub(crate) held: bool,
    pub(crate) tokens: Vec<(String, i64)>,
}

impl Call {
    pub(crate) fn token(&self, name: &str) -> Option<i64> {
        let tokens = &self.begun.as_ref()?.tokens;
        tokens.iter().find(|(of, _)| of == name).map(|(_, token)| *token)
    }

    /// Returns true if the lock was held when the body was first polled.
    pub(crate) fn was_held(&self) -> bool {
        self.begun.as_ref().is_some_and(|begun| begun.held)
    }

    pub(crate) fn is_exclusive(&self) -> bool {
        self.asked.mode == Mode::Exclusive
    }
}

/// Returns when the body of a call began; the end of time if it did not.
pub(crate) fn began(call: &Call) -> u64 {
    call.begun.as_ref().map_or(u64::MAX, |begun| begun.at)
}

/// Gathers the calls, in order of their ids.
pub(crate) fn of(events: &[Event]) -> BTreeMap<CallId, Call> {
    let mut calls: BTreeMap<CallId, Call> = BTreeMap::new();
    for Event { at, what } in events {
        let What::Said { process, said } = what else {
            continue;
        };
        let id = |call: &u64| CallId { process: *process, call: *call };
        let call = match said {
            Said::Asked { call, asked } => {
                let (id, asked) = (id(call), asked.clone());
                calls.insert(id, Call { id, asked_at: *at, asked, ..Call::default() });
                continue;
            }
            Said::Begun { call, .. }
            | Said::Polled { call, .. }
            | Said::Ended { call, .. }
            | Said::Returned { call, .. } => calls.get_mut(&id(call)),
            _ => None,
        };
        let Some(call) = call else { continue };
        match said {
            Said::Begun { .. } if call.begun.is_some() => call.again.push(*at),
            Said::Begun { held, tokens, .. } => {
                call.begun = Some(Begun { at: *at, held: *held, tokens: tokens.clone() });
                call.polled(*at, *held);
            }
            Said::Polled { held, .. } => call.polled(*at, *held),
            Said::Ended { held, how, .. } => {
                // A body that is dropped is not polled. One that returns after its loss has reported the loss in that poll.
                if *held {
                    call.polled(*at, true);
                }
                call.ended = Some((*at, *how));
            }
            Said::Returned { result, .. } => call.returned = Some((*at, result.clone())),
            _ => {}
        }
    }
    calls
}

impl Call {
    fn polled(&mut self, at: u64, held: bool) {
        if held {
            self.held_until = self.held_until.max(at);
        } else if self.late.last() != Some(&at) {
            self.late.push(at);
        }
    }
}
