//! The way between the processes and etcd: what arrives, when, how often, and what is heard of it.

use std::time::Duration;

use super::bench::{Bench, Happening};
use super::store::{revision_of, unavailable, unknown};
use crate::clock::Moment;
use crate::core::RequestId;
use crate::core::request::{Op, Request, Response, WatchNews};

impl Bench {
    /// The network's part: how long a request travels, whether it arrives, and what the process gets to know.
    pub(crate) fn send(&mut self, n: usize, id: RequestId, request: Request) {
        let (now, process) = (self.now, &self.processes[n]);
        let patience = match &request {
            Request::KeepAlive { timeout, .. } => *timeout,
            _ => Duration::from_secs(2),
        };
        let trip = self.faults.trip(&mut self.random);
        if trip.unavailable || (process.unheard > now && self.random.chance(0.5)) {
            return self.at(
                now + trip.there.min(patience),
                Happening::Answer {
                    to: n,
                    id,
                    result: Err(unavailable()),
                },
            );
        }
        let arrives = (process.unheard <= now && !trip.lost).then(|| now + trip.there);
        let back = arrives
            .filter(|_| process.deaf <= now && !trip.answer_lost)
            .map(|at| at + trip.back);
        let back = back.filter(|at| *at < now + patience);
        if back.is_none() {
            self.at(
                now + patience,
                Happening::Answer {
                    to: n,
                    id,
                    result: Err(unknown()),
                },
            );
        }
        if matches!(request, Request::KeepAlive { .. })
            && let Some((asleep, unheard)) = self.faults.stops(&mut self.random)
        {
            let process = &mut self.processes[n];
            process.asleep = process.asleep.max(now + asleep);
            process.unheard = process.unheard.max(now + unheard);
        }
        let Some(at) = arrives else { return };
        if trip.twice && may_arrive_twice(&request) {
            let later = at + self.faults.trip(&mut self.random).there;
            self.at(
                later,
                Happening::Arrive {
                    from: n,
                    id,
                    request: request.clone(),
                    back: None,
                },
            );
        }
        self.at(
            at,
            Happening::Arrive {
                from: n,
                id,
                request,
                back,
            },
        );
    }

    pub(crate) fn arrive(
        &mut self,
        from: usize,
        id: RequestId,
        request: &Request,
        back: Option<Moment>,
    ) {
        let stale = self.faults.stale(&mut self.random);
        let result = match request {
            Request::Txn(txn) if stale.is_some() && reads_only(request) => Ok(Response::Txn(
                self.store.stale(txn, stale.unwrap_or_default()),
            )),
            _ => self.store.apply(self.now, request),
        };
        self.trace
            .note(self.now, from, || format!("   {id} at etcd: {result:?}"));
        if let Ok(Response::Granted { lease, .. }) = result {
            self.owners.insert(lease, from);
        }
        self.check_removals();
        if let Some(at) = back {
            self.at(
                at,
                Happening::Answer {
                    to: from,
                    id,
                    result,
                },
            );
        }
    }

    /// Hands the watches what has happened since.
    pub(crate) fn spread_news(&mut self) {
        let mut news = Vec::new();
        for (n, process) in self
            .processes
            .iter_mut()
            .enumerate()
            .filter(|(_, p)| !p.dead)
        {
            for (&id, watch) in process
                .watches
                .iter_mut()
                .filter(|(_, w)| w.silent <= self.now)
            {
                let Some(events) = self.store.events(&watch.prefix, watch.next) else {
                    watch.silent = Moment::after_boot(Duration::MAX); // cancelled by etcd
                    news.push((
                        n,
                        id,
                        self.now + self.faults.trip(&mut self.random).back,
                        WatchNews::Compacted,
                    ));
                    continue;
                };
                for event in events {
                    watch.next = revision_of(&event) + 1;
                    for _ in 0..self.faults.copies(&mut self.random) {
                        watch.delivered = watch
                            .delivered
                            .max(self.now + self.faults.trip(&mut self.random).back);
                        news.push((n, id, watch.delivered, WatchNews::Event(event.clone())));
                    }
                }
            }
        }
        for (to, watch, at, news) in news {
            self.at(at, Happening::News { to, watch, news });
        }
    }
}

/// Acquisitions are never repeated by anybody; all else may be (rule P8).
fn may_arrive_twice(request: &Request) -> bool {
    match request {
        Request::Grant { .. } => false,
        Request::KeepAlive { .. } | Request::Revoke { .. } => true,
        Request::Txn(txn) => !txn
            .then
            .iter()
            .any(|op| matches!(op, Op::Put { key, .. } if !key.starts_with("locks%s/"))),
    }
}

fn reads_only(request: &Request) -> bool {
    let Request::Txn(txn) = request else {
        return false;
    };
    txn.then
        .iter()
        .chain(&txn.or_else)
        .all(|op| matches!(op, Op::Get { .. } | Op::Range { .. }))
}
