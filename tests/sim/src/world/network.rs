//! Network between the processes and etcd: what arrives, when and how often, and which responses return.

use std::time::Duration;

use super::bench::{Bench, Happening, Message, Watch};
use super::etcd::{unavailable, unknown};
use super::tally::Happened;
use super::transport::Transport;
use super::violation::must;
use crate::world::Revision;
use etcd_locked_core::{
    Compare, Event, Failure, Input, Key, Moment, Op, Request, RequestId, Response, Search, WatchId,
};

impl Bench {
    /// Sends a request: draws how long it travels, whether it arrives, and what its process receives.
    pub(crate) fn send(&mut self, n: usize, id: RequestId, request: Request) {
        self.check_request(&request);
        if let Some(under_way) = &mut self.by_hand {
            let given_up = false;
            return under_way.push(Message::Request { from: n, id, request, given_up });
        }
        let (now, process) = (self.now, &mut self.processes[n]);
        process.transport.send(process.clock.shown(now), id, &request);
        let (cut_off, deaf) = (process.cut_off > now, process.deaf > now);
        let patience = match &request {
            Request::KeepAlive { timeout, .. } => *timeout,
            _ => Duration::from_secs(2),
        };
        let trip = self.faults.trip(&mut self.random);
        if trip.not_reached || (cut_off && self.random.chance(0.5)) {
            self.tally.count(Happened::NotReached);
            return self.fail(n, id, now + trip.there.min(patience), unavailable());
        }
        let there = match trip.late {
            Some(late) => patience + late,
            None => trip.there,
        };
        let arrives = (!cut_off && !trip.lost).then(|| now + there);
        let back = arrives
            .filter(|_| !deaf && !trip.answer_lost)
            .map(|at| at + trip.back)
            .filter(|at| *at < now + patience);
        match (arrives, back) {
            (None, _) => self.tally.count(Happened::RequestLost),
            (Some(at), _) if at >= now + patience => self.tally.count(Happened::LateArrival),
            (Some(_), None) => self.tally.count(Happened::AnswerLost),
            (Some(_), Some(_)) if trip.slow => self.tally.count(Happened::Delayed),
            _ => {}
        }
        if back.is_none() {
            self.fail(n, id, now + patience, unknown());
        }
        if matches!(request, Request::KeepAlive { .. }) && self.random.chance(self.faults.stops) {
            // A pause is worst while a renewal is under way.
            let (asleep, cut_off) = (self.random.millis(50, 1700), self.random.millis(1000, 5000));
            self.tally.count(Happened::Paused);
            self.tally.count(Happened::CutOff);
            let process = &mut self.processes[n];
            process.asleep = process.asleep.max(now + asleep);
            process.cut_off = process.cut_off.max(now + cut_off);
        }
        let Some(at) = arrives else { return };
        if let Some(later) = trip.twice
            && may_arrive_twice(&request)
        {
            self.tally.count(Happened::Twice);
            let again = Happening::Arrive { from: n, id, request: request.clone(), back: None };
            self.at(at + later, again);
        }
        let arrival = Happening::Arrive { from: n, id, request, back };
        self.at(at, arrival);
    }

    /// Schedules the failure of a request.
    fn fail(&mut self, to: usize, id: RequestId, at: Moment, failure: Failure) {
        let input = Input::Answer { request: id, result: Err(failure) };
        self.at(at, Happening::Submit { to, input });
    }

    pub(crate) fn arrive(
        &mut self,
        from: usize,
        id: RequestId,
        request: Request,
        back: Option<Moment>,
    ) {
        if self.leaderless > self.now {
            return self.no_leader(from, id, request, back);
        }
        let process = &mut self.processes[from];
        if !Transport::is_probe(id) {
            if id < process.arrived {
                self.tally.count(Happened::Overtaken);
            }
            process.arrived = process.arrived.max(id);
        }
        // The number of writes by which a read is behind.
        let stale =
            self.random.chance(self.faults.stale).then(|| self.random.below(4) as usize + 1);
        let stale = stale.filter(|_| matches!(&request, Request::Txn(txn) if txn.only_reads()));
        let abort = self.stands(from, id);
        if is_search(&request) {
            self.tally.count(Happened::Searched);
        }
        let result = match (&request, stale) {
            (Request::Txn(txn), Some(back)) => {
                self.tally.count(Happened::StaleRead);
                Ok(Response::Txn(self.store.stale(txn, back)))
            }
            _ => self.store.apply(self.now, &request),
        };
        self.trace.note(self.now, Some(from), || format!("   {} at etcd: {result:?}", id.0));
        if let Ok(Response::Granted { lease, .. }) = result {
            self.owners.insert(lease, from);
        }
        self.times.entry(self.store.revision()).or_insert(self.now);
        self.check_removals();
        if let (Some((call, stood)), Ok(answer)) = (abort, &result) {
            self.check_abort(call, stood, answer);
        }
        let Some(at) = back else { return };
        let to = from;
        if let Some(under_way) = &mut self.by_hand {
            return under_way.push(Message::Answer { to, id, result });
        }
        let mut result = result;
        if matches!(request, Request::KeepAlive { .. }) && self.random.chance(self.faults.lagging) {
            let lag = self.random.below(3) as i64 + 1;
            self.tally.count(Happened::LaggingKeepAlive);
            // If the lease is gone, the transport reads etcd's revision.
            if let Ok(Response::KeptAlive { ttl, revision, .. }) = &mut result
                && !ttl.is_zero()
            {
                *revision = revision
                    .and_then(|at| at.get().checked_sub(lag))
                    .filter(|at| *at > 0)
                    .and_then(etcd_locked_core::Revision::new);
            }
        }
        let input = Input::Answer { request: id, result };
        self.at(at, Happening::Submit { to, input });
    }

    /// Handles a request without a leader: it is refused, or lost, or waits for one.
    fn no_leader(&mut self, from: usize, id: RequestId, request: Request, back: Option<Moment>) {
        match (self.random.below(3), back) {
            (0, Some(at)) => {
                self.tally.count(Happened::NotReached);
                self.fail(from, id, at, unavailable());
            }
            (outcome, _) => {
                if let Some(at) = back {
                    self.fail(from, id, at + Duration::from_millis(500), unknown());
                }
                if outcome == 1 {
                    self.tally.count(Happened::LateArrival);
                    let late = Happening::Arrive { from, id, request, back: None };
                    self.at(self.leaderless + Duration::from_millis(1), late);
                } else {
                    self.tally.count(Happened::RequestLost);
                }
            }
        }
    }

    pub(crate) fn watch(&mut self, n: usize, id: WatchId, prefix: Key, puts: bool, from: Revision) {
        // A fresh watch may be 100 ms late even without faults (rule P15).
        let silence = match self.random.chance(self.faults.silent) {
            true => {
                self.tally.count(Happened::SilentWatch);
                self.random.millis(100, 8000)
            }
            false => self.random.millis(0, 100),
        };
        let watch =
            Watch { prefix, puts, next: from, silent: self.now + silence, delivered: self.now };
        let before = self.processes[n].watches.insert(id, watch);
        must!(I10, before.is_none(), "watch {} exists", id.0);
    }

    /// Delivers new events to the watches.
    pub(crate) fn deliver_events(&mut self) {
        let revision = self.store.revision();
        let mut due = Vec::new();
        // With hundreds of watches that are up to date, few concern the keys that have changed since.
        let last = std::mem::replace(&mut self.delivered, revision);
        let changed = match revision > last {
            true => self.store.events("locks", last + 1),
            false => Some(Vec::new()),
        };
        let concerns = |prefix: &Key| {
            let is_below = |event: &Event| match event {
                Event::Put(kv) => kv.key.starts_with(prefix.as_bytes()),
                Event::Delete { key, .. } => key.starts_with(prefix.as_bytes()),
            };
            changed.as_ref().is_none_or(|changed| changed.iter().any(is_below))
        };
        for (n, process) in self.processes.iter_mut().enumerate() {
            if !process.is_there() {
                continue;
            }
            for (&id, watch) in &mut process.watches {
                if watch.silent > self.now || watch.next > revision {
                    continue;
                }
                if watch.next > last && !concerns(&watch.prefix) {
                    watch.next = revision + 1;
                    continue;
                }
                let Some(events) = watch.events(&self.store) else {
                    watch.silent = Moment::after_boot(Duration::MAX); // cancelled by etcd
                    let at = self.now + self.faults.trip(&mut self.random).back;
                    due.push((n, id, at, None));
                    continue;
                };
                watch.next = revision + 1;
                for event in events {
                    let again = self.random.chance(self.faults.silent);
                    let copies = if again { self.random.below(3) } else { 1 };
                    if copies != 1 {
                        self.tally.count(Happened::EventAgain);
                    }
                    for _ in 0..copies {
                        let at = self.now + self.faults.trip(&mut self.random).back;
                        watch.delivered = watch.delivered.max(at);
                        due.push((n, id, watch.delivered, Some(event.clone())));
                    }
                }
            }
        }
        for (to, watch, at, event) in due {
            self.at(at, Happening::Submit { to, input: Input::Watch { watch, event } });
        }
    }
}

/// Returns true if it is a read of a search for cycles.
fn is_search(request: &Request) -> bool {
    let many =
        |op: &Op| matches!(op, Op::Range { limit: Some(Search::CONTENDERS), values: true, .. });
    matches!(request, Request::Txn(txn) if txn.then.iter().any(many))
}

/// Returns true if a request may be repeated (rule P8): all but acquisitions. A write of a held key names its revision.
pub(crate) fn may_arrive_twice(request: &Request) -> bool {
    let txn = match request {
        Request::Grant(..) => return false,
        Request::KeepAlive { .. } | Request::Revoke(_) | Request::List(_) => return true,
        Request::Txn(txn) => txn,
    };
    txn.then.iter().all(|op| match op {
        Op::Put { key, .. } => {
            let guards = |compare: &Compare| {
                matches!(compare, Compare::Modified(of, _) | Compare::Created(of, _) if of == key)
            };
            key.starts_with("locks%s/") || txn.when.iter().any(guards)
        }
        _ => true,
    })
}
