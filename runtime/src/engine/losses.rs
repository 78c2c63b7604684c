//! Losses of one step of the core: one line in the log for each cause, however many locks went together.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::ownership::OwnedLocks;
use crate::metrics;
use crate::values::LossCause;

/// How many templates a line names.
const NAMED: usize = 3;

/// How many locks there are of each template.
type Templates = BTreeMap<String, usize>;

/// Logs and counts calls that have lost their locks.
pub(super) fn report(losses: Vec<(Arc<OwnedLocks>, LossCause)>) {
    let mut causes: HashMap<LossCause, Templates> = HashMap::new();
    for (locks, cause) in losses {
        let cause = locks.lost().unwrap_or(cause); // it may know better why the lease was not renewed
        metrics::lost(&locks.first.name, cause);
        tracing::debug!(parent: None, lock = %locks.first.name, %cause, "a lock was lost");
        let templates = causes.entry(cause).or_default();
        locks.locks().for_each(|lock| *templates.entry(lock.name.to_string()).or_default() += 1);
    }
    for (cause, templates) in causes {
        let (locks, names) = (templates.values().sum::<usize>(), most_frequent(&templates));
        // Lines of no span: this may run on the thread of another call.
        match cause {
            LossCause::Shutdown => tracing::warn!(
                parent: None,
                code = "shutdown.cut_off",
                locks,
                %names,
                "the grace of a shutdown is over: bodies have lost their locks, and are dropped"
            ),
            _ => tracing::warn!(
                parent: None,
                code = "lock.lost",
                locks,
                %names,
                %cause,
                "locks were lost: their bodies are dropped, unless they are to continue"
            ),
        }
    }
}

/// Names the most frequent templates, with the number of locks of each.
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
