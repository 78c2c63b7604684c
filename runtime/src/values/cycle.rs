//! Cycle of tasks that wait for each other's locks, as the refused call sees it.

use std::fmt;
use std::sync::Arc;

use super::{Holder, KEY, shown};

/// The cycle of waits in a [`LockError::Deadlock`](crate::LockError::Deadlock).
///
/// `Display` shows templates; `Debug` shows the keys too.
#[derive(Debug, Clone)]
pub struct Cycle(Arc<[(String, Option<Holder>)]>);

impl Cycle {
    /// Returns the holders in order. The first holds what the refused call requested, or is queued before it. Each waits for the next.
    /// The last is the lock that the refused call's own task holds.
    pub fn holders(&self) -> impl Iterator<Item = &Holder> {
        self.0.iter().filter_map(|(_, holder)| holder.as_ref())
    }

    /// Builds a cycle from keys and the records stored there.
    pub(crate) fn of(members: impl Iterator<Item = (Arc<str>, Option<Holder>)>) -> Self {
        Self(members.map(|(key, holder)| (shown(&key, KEY), holder)).collect())
    }
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "this call waits for";
        for holder in self.holders() {
            write!(f, "{before} {holder}")?;
            if let Some(template) = holder.template() {
                write!(f, " with `{template}`")?;
            }
            before = ", which waits for";
        }
        Ok(())
    }
}
