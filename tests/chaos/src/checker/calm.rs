//! Calm: times in which no fault or long stall explains that a call fails or is overtaken.

use super::Known;
use super::calls::Call;
use super::exclusion::BLOCKING;
use super::faults::{Failure, Fault, LONG_TTL};
use super::pauses::covered;
use super::removals::Span;
use crate::clock::ms;

/// How long after its end a fault may still cause an error.
pub(super) const AFTERMATH: u64 = ms(15_000);
/// How long after the TTL a process may take to notice and report that a lock is lost.
const LEARNT: u64 = ms(5_000);
/// How long a body blocks its thread; until then its call reports nothing.
const BLOCKED: u64 = ms(6_000);

impl Known<'_> {
    /// Returns true if a call was not disturbed between two moments, or in the given time before.
    pub(super) fn is_calm(&self, call: &Call, (from, to): (u64, u64), before: u64) -> bool {
        let longest = self.pauses.longest_stall(from.saturating_sub(before), to);
        let mut faults = self.faults.iter();
        longest < ms(call.asked.ttl) / 3 && !faults.any(|fault| fault.disturbs(from, to, before))
    }

    /// Returns true if a fault or a long stall may explain this failure of a call between two moments.
    pub(super) fn is_explained(&self, call: &Call, (from, to): Span, why: Failure<'_>) -> bool {
        let ttl = ms(call.asked.ttl);
        // A lost lock was not renewed for a TTL, or its key was gone. A call is refused after some seconds of retries.
        let since = match why {
            Failure::Lost(cause) => {
                let leases = if cause == "Gone" { 2 } else { 1 };
                let blocked = if call.asked.kind == BLOCKING { BLOCKED } else { 0 };
                to.saturating_sub(leases * ttl + LEARNT + blocked)
            }
            Failure::Refused | Failure::Unreleased => to.saturating_sub(AFTERMATH),
            Failure::Delayed => from.saturating_sub(AFTERMATH),
        };
        let explains = |fault: &&Fault| fault.disturbs(since, to, 0) && fault.explains(call, why);
        let explaining = self.faults.iter().filter(explains);
        let silent: Vec<_> = explaining.map(|fault| (fault.begun, fault.until())).collect();
        // A stall that lasts until the next renewal may cost the lease, or delay its calls.
        let least = match why {
            // A release is given up after two seconds, whatever the TTL.
            Failure::Unreleased => (ttl / 3).min(ms(1_000)),
            _ => ttl / 3,
        };
        let stalled = self.pauses.longest_stall(since, to) >= least;
        if why != Failure::Lost("Expired") || ttl < LONG_TTL {
            return stalled || !silent.is_empty();
        }
        // Renewals come every third of the TTL, so a long lease runs out only after a longer time without any.
        stalled || covered(&silent, 0, to) >= ttl / 3
    }

    /// Returns true if etcd itself revoked the long lease of this lock although it was renewed.
    pub(super) fn is_revoked_by_etcd(&self, call: &Call, (from, to): (u64, u64)) -> bool {
        let lost = Failure::Lost("Gone");
        let near = || self.faults.iter().filter(|fault| fault.disturbs(from, to, AFTERMATH));
        ms(call.asked.ttl) >= LONG_TTL
            && near().any(Fault::makes_etcd_revoke)
            && !near().any(|fault| !fault.makes_etcd_revoke() && fault.explains(call, lost))
    }
}
