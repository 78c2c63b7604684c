//! The end: no new locks, bodies get their grace, then leases go (rule P26).

use std::time::Duration;

use crate::clock::Moment;
use crate::core::call::{Call, Stage};
use crate::core::lease::State;
use crate::core::request::Request;
use crate::core::{CallId, Core, Exchange, Output, Refused, Timer, steps};
use crate::error::LossCause;

/// How long the last deletions and revocations may take: after that the leases run out by themselves.
const FAREWELL: Duration = Duration::from_secs(2);

/// A shutdown under way.
#[derive(Debug)]
pub(super) struct Shutdown {
    /// Until when bodies may run.
    until: Moment,
    /// The bodies have been told to stop.
    cancelled: bool,
    /// The leases have been sent off; until when to wait for that.
    farewell: Option<Moment>,
    finished: bool,
}

impl Core {
    /// Whether a new call is turned away.
    pub(super) fn refuses(&self, nested: bool) -> bool {
        self.shutdown
            .as_ref()
            .is_some_and(|s| !nested || s.cancelled)
    }

    /// Whether leases are left to run out.
    pub(super) fn shutdown_cancels(&self) -> bool {
        self.shutdown.as_ref().is_some_and(|s| s.cancelled)
    }

    pub(super) fn begin_shutdown(&mut self, now: Moment, until: Moment) {
        let until = self.shutdown.as_ref().map_or(until, |s| s.until.min(until));
        let (cancelled, farewell, finished) =
            self.shutdown.as_ref().map_or((false, None, false), |s| {
                (s.cancelled, s.farewell, s.finished)
            });
        self.shutdown = Some(Shutdown {
            until,
            cancelled,
            farewell,
            finished,
        });
        self.at(until, Timer::Shutdown);
        self.turn_away(now, false);
    }

    /// Refuses the calls that wait, those of tasks that hold a lock only if `nested`.
    fn turn_away(&mut self, now: Moment, nested: bool) {
        steps::count(self.calls.len());
        let waiting = |c: &Call| c.stage == Stage::Waiting && (nested || c.outer().is_empty());
        let waiting: Vec<CallId> = self
            .calls
            .iter()
            .filter(|(_, c)| waiting(c))
            .map(|(call, _)| *call)
            .collect();
        self.reject(now, waiting, &Refused::ShuttingDown);
        let warming: Vec<CallId> = self
            .leases
            .values_mut()
            .flat_map(|l| std::mem::take(&mut l.warming))
            .map(|(call, _)| call)
            .collect();
        for call in warming {
            self.refuse(call, Refused::ShuttingDown);
        }
    }

    /// The grace is over: stops the bodies that still run.
    pub(super) fn shutdown_due(&mut self, now: Moment) {
        let Some(shutdown) = &mut self.shutdown else {
            return;
        };
        if shutdown.cancelled || now < shutdown.until {
            return;
        }
        shutdown.cancelled = true;
        let holding = |c: &Call| c.stage == Stage::Holding;
        let holding: Vec<CallId> = self
            .calls
            .iter()
            .filter(|(_, c)| holding(c))
            .map(|(call, _)| *call)
            .collect();
        for call in holding {
            self.lose_call(call, LossCause::Shutdown);
        }
        self.turn_away(now, true);
    }

    /// Once no body runs under any lease we still have, sends the leases off; once that is done, says so.
    pub(super) fn finish_shutdown(&mut self, now: Moment) {
        let Some(Shutdown {
            farewell, finished, ..
        }) = self.shutdown
        else {
            return;
        };
        // A lease whose body does not end has run out by the time it is lost.
        let bodies = self
            .leases
            .values()
            .any(|l| l.bodies > 0 && l.state != State::Lost);
        let waiting = self.queues.values().any(|q| {
            steps::count(1);
            !q.calls.is_empty()
        });
        steps::count(self.leases.len());
        if finished || bodies || waiting {
            return;
        }
        let over = farewell.unwrap_or_else(|| {
            self.at(now + FAREWELL, Timer::Shutdown);
            now + FAREWELL
        });
        let deleting = self.deletes_under_way > 0 || !self.deletions.is_empty();
        if !deleting || now >= over {
            let leases: Vec<_> = std::mem::take(&mut self.leases)
                .into_values()
                .filter(|l| l.id != 0 && l.bodies == 0)
                .collect();
            self.pool.clear();
            for lease in leases {
                self.send(now, Request::Revoke { lease: lease.id }, Exchange::Revoke);
            }
        }
        let revoking = self
            .under_way
            .values()
            .any(|u| matches!(u.exchange, Exchange::Revoke));
        let finished = now >= over || !(deleting || revoking);
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.farewell = Some(over);
            shutdown.finished = finished;
        }
        if finished {
            self.outputs.push_back(Output::Finished);
        }
    }
}
