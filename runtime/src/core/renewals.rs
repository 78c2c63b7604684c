//! How leases are kept: renewed in time, and not relied on from the moment that may have been too late (rules P28, P30).

use crate::clock::Moment;
use crate::core::lease::LeaseRef;
use crate::core::request::{Failure, Refusal, Request, Response};
use crate::core::{Core, Exchange, Timer};
use crate::error::LossCause;

impl Core {
    /// Renews the lease unless that has been done since the timer was set.
    pub(super) fn renew_if_due(&mut self, now: Moment, lease: LeaseRef) {
        if self.leases.get(&lease).is_none_or(|l| l.renew_at > now) {
            return;
        }
        match self.is_spare(lease) {
            true => self.retire(now, lease),
            false => self.renew(now, lease),
        }
    }

    /// Renews the lease now, unless that is under way.
    pub(crate) fn renew(&mut self, now: Moment, lease: LeaseRef) {
        let cancelled = self.shutdown_cancels();
        let Some(l) = self.leases.get_mut(&lease) else {
            return;
        };
        if !l.is_alive() || l.renewing || cancelled {
            return;
        }
        l.renewing = true;
        let request = Request::KeepAlive {
            lease: l.id,
            timeout: l.renewal_timeout(),
        };
        self.send(now, request, Exchange::Renewal(lease));
    }

    pub(super) fn renewed(
        &mut self,
        now: Moment,
        lease: LeaseRef,
        sent: Moment,
        result: Result<Response, Failure>,
    ) {
        let Some(l) = self.leases.get_mut(&lease) else {
            return;
        };
        l.renewing = false;
        if !l.is_alive() {
            return;
        }
        match result {
            Ok(Response::KeptAlive { ttl }) if !ttl.is_zero() => {
                if !l.renewed(now, sent, ttl) {
                    return self.lose(now, lease, LossCause::Expired);
                }
                l.failures = 0;
                l.renew_at = l.renewal_after(sent);
                let next = l.renew_at;
                let unfresh = std::mem::take(&mut l.unfresh);
                self.lets_in(lease);
                self.at(next, Timer::Renew(lease));
                for name in unfresh {
                    self.advance(now, &name);
                }
            }
            Ok(_)
            | Err(Failure::Refused {
                kind: Refusal::LeaseNotFound,
                ..
            }) => self.ended(now, lease),
            // Says nothing about the lease: send again, the first time at once, by another endpoint (rule P30).
            Err(failure) => {
                let failures = l.failures;
                l.failures += 1;
                let again = match failures {
                    0 => now,
                    _ => now + self.pause(failures),
                };
                if let Some(l) = self.leases.get_mut(&lease) {
                    l.renew_at = again;
                }
                self.at(again, Timer::Renew(lease));
                self.keeps_out(now, lease, sent, failure.cause());
            }
        }
    }

    pub(super) fn arm_stop(&mut self, lease: LeaseRef) {
        if let Some(stop) = self.leases.get(&lease).and_then(|l| l.deadline.stop()) {
            self.at(stop, Timer::Stop(lease));
        }
    }

    /// The stop time as it was when the timer was set has come; renewals have usually moved it on.
    pub(super) fn stop(&mut self, now: Moment, lease: LeaseRef) {
        let Some(l) = self.leases.get(&lease) else {
            return;
        };
        if l.is_alive() && l.deadline.is_over(now) {
            let cause = if l.ended {
                LossCause::Revoked
            } else {
                LossCause::Expired
            };
            self.lose(now, lease, cause);
        } else {
            self.arm_stop(lease);
        }
    }
}
