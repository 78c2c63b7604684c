//! Row about one name, as `ls` and `top` show it.

use std::time::Duration;

use etcd_locked::Queue;

use crate::contender::{held_for, holders, queued_for, shown};

/// Name that is locked.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) mode: &'static str,
    /// First holder, and the number of others.
    pub(crate) holder: String,
    /// Time for which it has been held; `None` if only clients of another kind hold it.
    pub(crate) held: Option<Duration>,
    pub(crate) waiting: usize,
    pub(crate) longest: Option<Duration>,
    /// Keys that left the name per second, as `top` counts them; `None` if unknown.
    pub(crate) gone: Option<f64>,
}

impl Row {
    pub(crate) fn of(queue: &Queue) -> Self {
        let first = queue.holders().next();
        Self {
            name: queue.name().to_owned(),
            mode: first.map_or("-", |it| it.sharing().word()),
            holder: holders(queue).unwrap_or_else(|| "-".to_owned()),
            held: queue.holders().filter_map(held_for).max(),
            waiting: queue.waiters().count(),
            longest: queue.waiters().filter_map(queued_for).max(),
            gone: None,
        }
    }

    /// Returns the cells that both show, beginning with the name.
    pub(crate) fn cells(&self) -> [String; 6] {
        [
            self.name.clone(),
            self.mode.to_owned(),
            self.holder.clone(),
            self.held.map_or_else(|| "?".to_owned(), shown),
            self.waiting.to_string(),
            self.longest.map_or_else(|| "-".to_owned(), shown),
        ]
    }
}
