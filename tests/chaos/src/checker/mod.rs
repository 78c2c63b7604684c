//! Checker: a history in, verdicts out. Pure.

mod answers;
mod bounds;
pub(crate) mod calls;
mod calm;
mod exclusion;
pub(crate) mod faults;
pub(crate) mod liveness;
mod order;
mod pauses;
mod remains;
mod removals;
#[cfg(test)]
pub(crate) mod tests;
mod tokens;
mod validity;
pub(crate) mod verdicts;

pub(crate) use verdicts::{Verdicts, Violation};

use crate::history::{Event, What};
use crate::results::OURS;

/// The version of the rules, raised with each change of them: figures of two versions do not add up.
pub(crate) const VERSION: u32 = 5;

/// Judges a history.
pub(crate) fn judge(events: &[Event]) -> Verdicts {
    let calls = calls::of(events);
    let faults = faults::of(events);
    let mut verdicts = Verdicts::default();
    let pauses = pauses::Pauses::of(events);
    let removals = removals::Removals::of(events, &calls, &faults, &pauses);
    exclusion::judge(&calls, &removals, &pauses, &mut verdicts);
    tokens::judge(events, &calls, &removals, &mut verdicts);
    // Peers promise no order among the tasks of a process.
    let ours = |event: &Event| !matches!(&event.what, What::Run(run) if run.who != OURS);
    if events.iter().all(ours) {
        order::judge(&calls, &faults, &pauses, &mut verdicts);
        verdicts.order_judged = calm::lasts(events, &faults, &pauses, order::AFTERMATH);
    }
    verdicts.errors_judged = calm::share_judged(events, &faults, &pauses);
    validity::judge(&calls, &faults, &pauses, &mut verdicts);
    answers::judge(&calls, &faults, &pauses, &mut verdicts);
    bounds::judge(&calls, &faults, &pauses, &removals, &mut verdicts);
    liveness::judge(events, &calls, &faults, &pauses, &mut verdicts);
    verdicts.stalls = pauses.stalls().collect();
    remains::judge(events, &faults, &mut verdicts);
    verdicts.violations.sort_by_key(|violation| violation.at);
    verdicts
}
