//! Cycles: how deadlocks are looked for, and cut (rule P38).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::{Core, Exchange};
use crate::call::Call;
use crate::contender::{Contender, State};
use crate::deadlock::{self, Cycle, STEP, Search};
use crate::ids::{CallId, ContenderId, HELD, Incarnation, Key};
use crate::output::{Blocker, Output, Refused};
use crate::ownership::Ownership;
use crate::request::{Failure, Request, TxnAnswer};
use crate::steps::step;
use crate::transactions;

/// Calls that the walk inside the process comes to at most.
const WALK: usize = 64;

impl Core {
    /// When a nested call puts a key of its own, or looks for a cycle: with others, so that searches share transactions.
    pub(super) fn search_later(&mut self, id: CallId) {
        let due = (self.now + STEP).rounded_up(deadlock::TOGETHER);
        if let Some(call) = self.calls.get_mut(id) {
            call.search_at = Some(due);
        }
        self.set_call_timer(id);
    }

    /// A nested call has waited for another second: puts a key of its own, by which all processes see that its task waits; then looks
    /// for a cycle.
    pub(super) fn look_for_cycle(&mut self, id: CallId) {
        if !self.calls.may_deadlock(id) {
            let call = self.calls.get_mut(id);
            call.into_iter().for_each(|call| call.search_at = None);
            return self.set_call_timer(id);
        }
        self.search_later(id);
        let own = self.calls.get(id).map(|call| call.own.clone()).unwrap_or_default();
        let contenders = own.iter().filter_map(|id| self.names.contender(*id));
        let contenders: Vec<&Contender> = contenders.filter(|it| it.is_in_line()).collect();
        if contenders.is_empty() {
            return self.claim_beside(id);
        }
        let waits = contenders.iter().filter_map(|it| Some((it.key.clone()?, it.created?)));
        let waits: Vec<Incarnation> = waits.collect();
        if waits.len() == own.len() {
            let held = contenders.first().map_or_else(Vec::new, |it| self.held_keys(&it.lists));
            let prefix = &self.settings.prefix;
            self.searches.begin(id, || Search::new(prefix, waits, held));
        }
    }

    /// The keys of contenders that calls hold, as many as a value lists.
    pub(super) fn held_keys(&self, ids: &[ContenderId]) -> Vec<Incarnation> {
        let held =
            ids.iter().filter_map(|id| self.names.contender(*id).filter(|it| it.held().is_some()));
        held.filter_map(|it| Some((it.key.clone()?, it.created?))).take(HELD).collect()
    }

    fn claim_beside(&mut self, id: CallId) {
        if let Some(call) = self.calls.get(id) {
            let (names, mode) = (call.names.clone(), call.wish.mode);
            let seats = names.iter().map(|name| self.names.get(*name)?.free_beside(mode));
            if let Some(seats) = seats.collect::<Option<Vec<_>>>() {
                self.put_for(id, seats);
            }
        }
    }

    /// Sends the reads that searches want.
    pub(super) fn flush_searches(&mut self) {
        while self.may_send()
            && let Some(reads) = self.searches.next_reads()
        {
            let ranges = reads.iter().map(|(_, family)| Search::range(family));
            let txn = transactions::reads(ranges.collect());
            self.send(Request::Txn(txn), Exchange::Search(reads));
        }
    }

    /// Reads of searches were answered, or not.
    pub(super) fn searched(
        &mut self,
        reads: Vec<(CallId, Key)>,
        result: Result<TxnAnswer, Failure>,
    ) {
        let (cycles, bounded) = self.searches.answered(reads, result);
        self.outputs.extend(bounded.then_some(Output::Bounded));
        for (call, cycle) in cycles {
            self.abort(call, cycle);
        }
    }

    /// A cycle was found: takes the call out of it by one transaction, which proves that it stands.
    fn abort(&mut self, id: CallId, cycle: Cycle) {
        let Some(call) = self.calls.get(id) else { return };
        let own = call.own.clone();
        let waits = |id: &ContenderId| {
            let contender = self.names.contender(*id);
            contender.is_some_and(|it| matches!(it.state, State::Waiting) && !it.aborts)
        };
        let late = cycle.is_to_be_cut_after(self.now - call.since);
        if !late || !self.may_send() || !own.iter().all(waits) {
            return;
        }
        for id in &*own {
            self.names.contender_mut(*id).into_iter().for_each(|it| it.aborts = true);
        }
        self.send(Request::Txn(cycle.abort()), Exchange::Abort(id, own, cycle));
    }

    /// The transaction that was to cut a cycle was answered, or not.
    pub(super) fn aborted(
        &mut self,
        id: CallId,
        own: &[ContenderId],
        cycle: &Cycle,
        result: Result<TxnAnswer, Failure>,
    ) {
        for id in own {
            self.names.contender_mut(*id).into_iter().for_each(|it| it.aborts = false);
            self.names.touch(id.name);
        }
        match result {
            Ok(answer) if answer.succeeded => {
                own.iter().for_each(|id| self.remove(*id));
                self.refuse_deadlocked(id, cycle.blocked_by(answer));
            }
            // Nothing was deleted.
            Ok(_) | Err(Failure::Refused(..) | Failure::Unavailable(_)) => {}
            // Its keys may be gone. The call waits on by others.
            Err(Failure::Unknown(_)) => own.iter().for_each(|id| self.give_up(*id)),
        }
    }

    /// The cycle inside the process that a nested call closes, if it does. It leads forwards: to the holders of the names in this
    /// process and the contender in line, and to what their tasks wait for; the task of the call itself holds the last.
    pub(super) fn cycle_here(&self, id: CallId) -> Option<Arc<[Blocker]>> {
        let held: BTreeSet<CallId> = self.calls.outer(id).map(|(of, _)| of).collect();
        let blocker = |of: &Call| {
            let name = of.names.first().and_then(|name| self.names.get(*name));
            let key = name.map_or_else(|| Key::from(""), |name| name.text.clone());
            Blocker { key, record: of.record.clone() }
        };
        // Calls, each with the one that waits for it.
        let mut from = BTreeMap::new();
        let mut next = VecDeque::from([id]);
        while let Some(of) = next.pop_front() {
            step();
            if held.contains(&of) {
                let before = |of: &CallId| from.get(of).copied();
                let path = std::iter::successors(Some(of), before).take_while(|of| *of != id);
                let path = path.filter_map(|of| Some(blocker(self.calls.get(of)?)));
                let mut path: Vec<Blocker> = path.collect();
                path.reverse();
                return Some(path.into());
            }
            for to in self.calls.inner(of).chain(self.ahead_of(of)).take(WALK) {
                step();
                if from.len() < WALK && to != id && !from.contains_key(&to) {
                    from.insert(to, of);
                    next.push_back(to);
                }
            }
        }
        None
    }

    /// The calls of this process that keep a waiting call from its names; none once its wait is over.
    fn ahead_of(&self, id: CallId) -> impl Iterator<Item = CallId> {
        let waits = |call: &&Call| {
            call.ticket().is_some() && call.until.is_none_or(|until| until > self.now)
        };
        let mode = self.calls.get(id).filter(waits).map(|call| call.wish.mode);
        mode.into_iter().flat_map(move |mode| {
            self.names_of(id).flat_map(move |(_, name)| {
                let excludes = move |it: &Contender| mode.is_excluded_by(it.seat);
                let held = name.held_against(mode);
                let held = held.filter(|(_, it)| self.holds_in_time(it));
                let held = held.filter_map(|(_, it)| it.held());
                let put = move |it: &Contender| it.key.is_some() && excludes(it);
                let in_line = name.in_line().filter(move |(_, it)| put(it));
                let served = in_line.filter_map(|(_, it)| name.serves(it, &self.calls));
                held.flat_map(Ownership::holders).chain(served.filter(move |of| *of != id))
            })
        })
    }

    /// Whether the time of a contender's session is not over.
    fn holds_in_time(&self, contender: &Contender) -> bool {
        let lease = self.sessions.get(contender.session).and_then(|it| it.lease.as_ref());
        lease.is_some_and(|lease| !lease.deadline.is_over(self.now))
    }

    /// Refuses a call of a cycle.
    pub(super) fn refuse_deadlocked(&mut self, id: CallId, cycle: Arc<[Blocker]>) {
        let Some(first) = cycle.first().map(|blocker| blocker.key.clone()) else { return };
        let parent = first.rsplit_once('/').map(|(name, _)| name);
        let is_first = |text: &Key| **text == *first || parent == Some(&**text);
        let name = self.names_of(id).find(|(_, name)| is_first(&name.text));
        let name = name.map_or(0, |(at, _)| at);
        self.refuse(id, Refused::Deadlock { name, cycle });
    }
}
