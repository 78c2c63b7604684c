//! Losses of one step of the core: one line in the log for each cause, however many locks went together.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::ownership::OwnedLocks;
use crate::metrics;
use crate::values::loss::LossCause;

/// How many templates a line names.
const NAMED: usize = 3;

/// The calls that have lost their locks.
#[derive(Debug, Default)]
pub(super) struct Losses(Vec<(Arc<OwnedLocks>, LossCause)>);

impl Losses {
    pub(super) fn add(&mut self, locks: Arc<OwnedLocks>, cause: LossCause) {
        self.0.push((locks, cause));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Logs and counts them.
    pub(super) fn report(self) {
        let mut causes: Vec<(LossCause, Templates)> = Vec::new();
        for (locks, cause) in &self.0 {
            let cause = locks.lost().unwrap_or(*cause); // it may know better why the lease was not renewed
            metrics::lost(&locks.first.name, cause);
            tracing::debug!(parent: None, lock = %locks.first.name, %cause, "a lock was lost");
            let at = match causes.iter().position(|(other, _)| *other == cause) {
                Some(at) => at,
                None => {
                    causes.push((cause, Templates::default()));
                    causes.len() - 1
                }
            };
            for lock in locks.locks() {
                causes[at].1.add(lock.name.template());
            }
        }
        for (cause, templates) in causes {
            let locks = templates.locks;
            // Lines of no span: this may run on the thread of another call.
            match cause {
                LossCause::Shutdown => tracing::warn!(
                    parent: None,
                    code = "shutdown.cut_off",
                    locks,
                    names = %templates,
                    "the grace of a shutdown is over: bodies have lost their locks, and are dropped"
                ),
                _ => tracing::warn!(
                    parent: None,
                    code = "lock.lost",
                    locks,
                    names = %templates,
                    %cause,
                    "locks were lost: their bodies are dropped, unless they are to continue"
                ),
            }
        }
    }
}

/// How many locks there are of each template.
#[derive(Debug, Default)]
struct Templates {
    locks: usize,
    of: BTreeMap<Option<&'static str>, usize>,
}

impl Templates {
    fn add(&mut self, template: Option<&'static str>) {
        self.locks += 1;
        *self.of.entry(template).or_default() += 1;
    }
}

/// The most frequent first.
impl fmt::Display for Templates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut of: Vec<_> = self.of.iter().collect();
        of.sort_by_key(|(_, locks)| std::cmp::Reverse(**locks));
        for (at, (template, locks)) in of.iter().take(NAMED).enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let template = template.unwrap_or("<names given at run time>");
            write!(f, "{comma}{template}")?;
            if **locks > 1 {
                write!(f, " ({locks})")?;
            }
        }
        match of.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_names_the_most_frequent_templates() {
        let mut templates = Templates::default();
        for template in ["a", "b", "c", "d", "d", "e"] {
            templates.add(Some(template));
        }
        assert_eq!(templates.to_string(), "d (2), a, b and 2 more");
        templates.add(None);
        assert_eq!(templates.locks, 7);
        let mut one = Templates::default();
        one.add(None);
        assert_eq!(one.to_string(), "<names given at run time>");
    }
}
