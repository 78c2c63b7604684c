//! Barrier: one write of a session's key, after which nothing that was sent before it can apply any more (rule P10).
//!
//! Its answer also tells which of the ambiguous keys exist. It is sent again, unchanged, until etcd has answered it.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::ids::ContenderId;
use crate::moment::Moment;

/// The barriers of one session: one at a time.
#[derive(Debug, Default)]
pub struct Barrier {
    /// Contenders whose put had no answer, and that no barrier asks for yet.
    ambiguous: BTreeSet<ContenderId>,
    current: Option<Current>,
    /// One is wanted although no contender is ambiguous.
    asked: bool,
    /// etcd may have lost its history.
    suspicious: bool,
}

/// A barrier that has no answer yet.
#[derive(Debug)]
struct Current {
    contenders: Vec<ContenderId>,
    since: Moment,
    under_way: bool,
    not_before: Moment,
}

impl Barrier {
    /// A contender's put had no answer.
    pub fn add(&mut self, contender: ContenderId) {
        self.ambiguous.insert(contender);
        self.asked = true;
    }

    /// One is wanted: to create the session key, to settle edges, or because another revision was seen.
    pub fn ask(&mut self) {
        self.asked = true;
    }

    /// One is wanted, to find out whether etcd has lost its history.
    pub fn suspect(&mut self) {
        self.asked = true;
        self.suspicious = true;
    }

    /// Whether etcd may have lost its history.
    pub fn is_suspicious(&self) -> bool {
        self.suspicious
    }

    /// Whether the session may not send acquisitions before a barrier is answered.
    pub fn is_wanted(&self) -> bool {
        self.asked || self.current.is_some()
    }

    /// A contender is gone: no barrier has to ask for it.
    pub fn forget(&mut self, contender: ContenderId) {
        self.ambiguous.remove(&contender);
    }

    /// What to send now, if anything: the contenders whose keys it asks for, at most so many `keys`.
    pub fn send(
        &mut self,
        now: Moment,
        keys: usize,
        count: impl Fn(ContenderId) -> usize,
    ) -> Option<&[ContenderId]> {
        if self.current.is_none() && self.asked {
            let mut room = keys;
            let fits = |contender: &&ContenderId| {
                let fits = count(**contender) <= room;
                room = room.saturating_sub(count(**contender));
                fits
            };
            let contenders: Vec<ContenderId> =
                self.ambiguous.iter().take_while(fits).copied().collect();
            for contender in &contenders {
                self.ambiguous.remove(contender);
            }
            self.asked = !self.ambiguous.is_empty();
            self.current = Some(Current {
                contenders,
                since: now,
                under_way: false,
                not_before: now,
            });
        }
        let current = self.current.as_mut()?;
        if current.under_way || now < current.not_before {
            return None;
        }
        current.under_way = true;
        Some(&current.contenders)
    }

    /// It was answered: the contenders it asked for.
    pub fn answered(&mut self) -> Vec<ContenderId> {
        self.suspicious = false;
        self.current
            .take()
            .map(|current| current.contenders)
            .unwrap_or_default()
    }

    /// It had no answer, or etcd refused it: it is sent again after the pause. Answers how long it has taken.
    pub fn failed(&mut self, now: Moment, pause: Duration) -> Duration {
        let Some(current) = &mut self.current else {
            return Duration::ZERO;
        };
        current.under_way = false;
        current.not_before = now + pause;
        now - current.since
    }

    /// When it is to be sent again, if it waits for that.
    pub fn due(&self) -> Option<Moment> {
        let current = self.current.as_ref()?;
        (!current.under_way).then_some(current.not_before)
    }
}
