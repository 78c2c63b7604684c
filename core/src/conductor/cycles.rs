//! Cycles: runs the searches for deadlocks, and aborts calls (rule P38).

use std::sync::Arc;

use super::{Core, Exchange};
use crate::contender::{Contender, State};
use crate::deadlock::{self, Cycle, Search};
use crate::ids::{self, CallId, ContenderId, Incarnation, Key, Unit, contends};
use crate::name::Name;
use crate::output::{Blocker, Output, Refused};
use crate::request::{Answer, Failure, Request};

impl Core {
    /// Goes on after another second of a nested call's wait: puts a key that shows the wait, and later searches for a cycle.
    pub(super) fn look_for_cycle(&mut self, id: CallId) {
        let nested = self.calls.is_nested(id);
        let Some(call) = self.calls.get_mut(id) else { return };
        let looks = call.search_at.is_some() && nested;
        call.search_at = looks.then(|| deadlock::next_search(self.now));
        if !looks {
            return;
        }
        let names = call.names.len();
        let contenders = call.own.iter().filter_map(|of| self.names.contender(*of));
        let in_line: Vec<&Contender> = contenders.filter(|it| it.is_in_line()).collect();
        let Some(first) = in_line.first() else { return self.claim(id, true) };
        let waits: Vec<Incarnation> = in_line.iter().filter_map(|it| it.incarnation()).collect();
        if waits.len() == names {
            let held = self.holds_of(first).collect();
            self.searches.begin(id, Search::new(&self.settings.prefix, waits, held));
        }
    }

    /// Returns the keys that a contender lists and that its task still holds.
    fn holds_of(&self, contender: &Contender) -> impl Iterator<Item = Incarnation> {
        let listed = contender.lists.iter().filter_map(|of| self.names.contender(*of));
        listed.filter(|it| it.held().is_some()).filter_map(Contender::incarnation)
    }

    /// Returns the value of a contender's key: the record, the other keys of its call, and those that its task holds.
    pub(super) fn value_of(&self, contender: &Contender, record: &Arc<[u8]>) -> Arc<[u8]> {
        let call = contender.bound.and_then(|call| self.calls.get(call));
        let group = call.into_iter().flat_map(|call| call.own.iter());
        let group = group.filter_map(|of| self.names.contender(*of)?.key.clone());
        let group = group.filter(|key| contender.key.as_ref() != Some(key));
        let held = self.holds_of(contender).map(|(key, created)| (key, Some(created)));
        let keys: Vec<_> = group.map(|key| (key, None)).chain(held).collect();
        ids::value_of(record, &keys)
    }

    /// Takes in reads of searches. Each cycle found is broken by one transaction, which also proves that it exists.
    pub(super) fn searched(&mut self, reads: Vec<(CallId, Key)>, result: Answer) {
        let was_bounded = self.searches.is_bounded;
        let cycles = self.searches.answered(reads, result);
        let is_first = self.searches.is_bounded && !was_bounded;
        self.outputs.extend(is_first.then_some(Output::Bounded));
        for (id, mut cycle) in cycles {
            let Some(call) = self.calls.get(id) else { continue };
            let own = call.own.clone();
            let waits = |of: &ContenderId| {
                let contender = self.names.contender(*of);
                contender.is_some_and(|it| matches!(it.state, State::Waiting) && !it.aborts)
            };
            let late = self.now - call.since >= cycle.patience;
            if late && self.lost.is_none() && own.iter().all(waits) {
                self.set_aborts(&own, true);
                let abort = std::mem::take(&mut cycle.abort);
                self.send(Request::Txn(abort), Exchange::Abort(id, own, cycle));
            }
        }
    }

    fn set_aborts(&mut self, own: &[ContenderId], aborts: bool) {
        for of in own {
            self.names.contender_mut(*of).into_iter().for_each(|it| it.aborts = aborts);
            self.names.touch(of.name);
        }
    }

    pub(super) fn aborted(&mut self, id: CallId, own: &Unit, cycle: &Cycle, result: Answer) {
        self.set_aborts(own, false);
        match result {
            Ok(answer) if answer.succeeded => {
                own.iter().for_each(|of| self.remove(*of));
                self.refuse_deadlocked(id, cycle.blocked_by(answer));
            }
            // No key was deleted.
            Ok(_) | Err(Failure::Refused(..) | Failure::Unavailable(_)) => {}
            // Its keys may be gone. The call goes on with other keys.
            Err(Failure::Unknown(_)) => own.iter().for_each(|of| self.give_up(*of)),
        }
    }

    /// Refuses a call because it is part of a cycle.
    pub(super) fn refuse_deadlocked(&mut self, id: CallId, cycle: Arc<[Blocker]>) {
        let Some(first) = cycle.first().map(|blocker| blocker.key.clone()) else { return };
        let is_of = |it: &Name| it.text == first || contends(&it.family, first.as_bytes());
        let name = self.names_of(id).find(|(_, it)| is_of(it)).map_or(0, |(at, _)| at);
        self.refuse(id, Refused::Deadlock { name, cycle });
    }
}
