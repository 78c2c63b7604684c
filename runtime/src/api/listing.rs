//! Listing of lock names with their holders and waiters, read from etcd page by page.

use std::collections::VecDeque;

use crate::engine::Engine;
use crate::values::{Contender, LockError, Queue, Queues};

/// The locked names, with their holders and waiters. They are read from etcd page by page at one revision, so a hundred thousand names
/// need no more memory than a few. If etcd compacts that revision meanwhile, the remaining pages are of a later one.
///
/// A name comes after those below it (`orders/7/items` before `orders/7`), and otherwise in byte order.
#[derive(Debug)]
pub struct Listing {
    engine: Engine,
    below: String,
    queues: Queues,
    whole: VecDeque<Queue>,
    /// Start of the next page; `None` after the last.
    next: Option<Vec<u8>>,
    end: Vec<u8>,
    revision: Option<i64>,
}

impl Listing {
    /// Lists the names that begin with `below`, from the keys that begin with `keys` after the prefix.
    pub(crate) fn new(engine: Engine, keys: &str, below: &str) -> Self {
        let prefix = engine.config().prefix.clone();
        let keys = [&*prefix, keys].concat().into_bytes();
        let mut end = keys.clone();
        if let Some(last) = end.last_mut() {
            *last += 1; // cannot overflow: no text contains the byte 255
        }
        Self {
            engine,
            below: below.to_owned(),
            queues: Queues::new(prefix),
            whole: VecDeque::new(),
            next: Some(keys),
            end,
            revision: None,
        }
    }

    /// Returns the next name; `None` after the last. After an error, the next call continues at the same place.
    ///
    /// # Errors
    /// [`LockError::Backend`] if no endpoint responds, or etcd refuses; [`LockError::ShuttingDown`] once the engine has ended;
    /// [`LockError::NotInitialized`] in a process that was forked from the one that started the engine. Cancel safe.
    pub async fn next(&mut self) -> Result<Option<Queue>, LockError> {
        loop {
            if let Some(queue) = self.whole.pop_front() {
                return Ok(Some(queue));
            }
            let Some(from) = &self.next else { return Ok(None) };
            let page = self.engine.page(from, &self.end, self.revision).await?;
            self.revision = Some(page.revision.get());
            let last = page.keys.last().filter(|_| page.more);
            self.next = last.map(|last| [&*last.key, &[0]].concat());
            for key in page.keys {
                self.whole.extend(self.queues.take(key));
            }
            if self.next.is_none() {
                self.whole.extend(self.queues.close(0));
            }
            self.whole.retain(|queue| queue.name().starts_with(&self.below));
        }
    }

    /// Removes and returns the stray keys read so far. They lie directly below the prefix, such as `locks/x`, where a lock's keys are
    /// `locks/x/…`. They lock no name, so [`next`](Self::next) skips them. An operator wrote them, or a client with another prefix. Stray
    /// keys that are not removed stay in memory with their values, as long as the listing.
    pub fn strays(&mut self) -> Vec<Contender> {
        self.queues.strays()
    }
}
