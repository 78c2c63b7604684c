//! Losses in one step of the core: one log line for each cause, however many locks were lost.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::ownership::OwnedLocks;
use crate::metrics;
use crate::values::LossCause;

/// Maximum number of templates in a line.
const NAMED: usize = 3;

/// Number of locks of each template.
type Templates = BTreeMap<String, usize>;

/// Logs and counts calls that lost their locks.
pub(super) fn report(losses: Vec<(Arc<OwnedLocks>, LossCause)>) {
    let mut causes: HashMap<LossCause, Templates> = HashMap::new();
    for (locks, cause) in losses {
        let cause = locks.lost().unwrap_or(cause); // it may know more precisely why the lease was not renewed
        metrics::lost(&locks.first.name, cause);
        tracing::debug!(parent: None, lock = %locks.first.name, %cause, "a lock was lost");
        let templates = causes.entry(cause).or_default();
        locks.locks().for_each(|lock| *templates.entry(lock.name.to_string()).or_default() += 1);
    }
    for (cause, templates) in causes {
        let (locks, names) = (templates.values().sum::<usize>(), most_frequent(&templates));
        // Outside any span, because this may run on the thread of another call.
        match cause {
            LossCause::Shutdown => tracing::warn!(
                parent: None,
                code = "shutdown.cut_off",
                locks,
                %names,
                "the grace of a shutdown is over: these locks are lost, and their bodies are dropped"
            ),
            _ => tracing::warn!(
                parent: None,
                code = "lock.lost",
                locks,
                %names,
                %cause,
                "locks were lost: their bodies are dropped, unless `on_lost` lets them continue"
            ),
        }
    }
}

/// Returns the most frequent templates, with the number of locks of each.
fn most_frequent(templates: &Templates) -> String {
    let mut all: Vec<_> = templates.iter().collect();
    all.sort_by_key(|(_, locks)| Reverse(**locks));
    let named = all.iter().take(NAMED).map(|(template, locks)| match locks {
        1 => template.to_string(),
        _ => format!("{template} ({locks})"),
    });
    let named = named.collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
