//! Listing of names: who holds and who waits, read from etcd page by page.

use std::collections::VecDeque;

use crate::engine::Engine;
use crate::values::{Contender, LockError, Queue, Queues};

/// The names that are locked, with their holders and waiters: read from etcd page by page, at one revision, so that a hundred thousand
/// names need no more memory than a few. If etcd compacts that revision in between, the rest is as it is then.
///
/// A name comes after those below it (`orders/7/items` before `orders/7`), else in the order of their bytes.
#[derive(Debug)]
pub struct Listing {
    engine: Engine,
    below: String,
    queues: Queues,
    whole: VecDeque<Queue>,
    /// Where the next page begins; `None` once there is none.
    next: Option<Vec<u8>>,
    end: Vec<u8>,
    revision: Option<i64>,
}

impl Listing {
    /// Lists the names that begin with `below`, of those whose contenders' keys begin with `keys` behind the prefix.
    pub(crate) fn new(engine: Engine, keys: &str, below: &str) -> Self {
        let prefix = engine.config().prefix.clone();
        let keys = [&*prefix, keys].concat().into_bytes();
        let mut end = keys.clone();
        if let Some(last) = end.last_mut() {
            *last += 1; // no text has the byte 255
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

    /// Returns the next name; `None` after the last. After an error it goes on where it was.
    ///
    /// # Errors
    /// [`LockError::Backend`] if no endpoint answers, or etcd refuses; [`LockError::ShuttingDown`] once the engine has ended;
    /// [`LockError::NotInitialized`] in a process that was forked from that which started it. Cancel safe.
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
            let mut whole: Vec<Queue> = Vec::new();
            for key in page.keys {
                whole.extend(self.queues.take(key));
            }
            if self.next.is_none() {
                whole.extend(self.queues.close(0));
            }
            whole.retain(|queue| queue.name().starts_with(&self.below));
            self.whole.extend(whole);
        }
    }

    /// Takes out the keys read so far that lie directly below the prefix: a key `locks/x`, where names have `locks/x/…`. They lock no
    /// name, so [`next`](Self::next) returns none for them; an operator has put them there, or a client with another prefix. Those that
    /// are not taken out are kept, with their values, as long as the listing.
    pub fn strays(&mut self) -> Vec<Contender> {
        self.queues.strays()
    }
}
