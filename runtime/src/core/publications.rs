//! What the keys of a holder say of the waiting keys its task depends on (rule P38).
//!
//! Written when a call of that task has waited for a second, and from then on as things change; unwritten before any call
//! it rests on is told that its wait is over, so that no other process follows an edge that is none. A grant unwrites
//! nothing: a key that owns its name has nothing older to wait for, whoever still names it.
//!
//! Each write compares the mod revision of each key, so that one that was sent before cannot come after it, and a write
//! that had no answer is followed by another until one has. What a stranger has put over it is written again.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::clock::Moment;
use crate::core::queue::Slot;
use crate::core::record::{self, Incarnation, Waits};
use crate::core::request::{Compare, Failure, Key, LeaseId, Op, Request, Revision, Txn, TxnAnswer};
use crate::core::{CallId, Core, Exchange, Timer, bundle, steps};

/// How long a call that gives up waits for its edges to be gone.
const CLEARING: Duration = Duration::from_secs(2);

/// What is written on the keys of one holder.
#[derive(Debug)]
pub(crate) struct Publication {
    /// All that may stand there, or may still come to.
    pub(super) may: BTreeSet<Incarnation>,
    /// And on what condition, if that does.
    pub(super) provided: BTreeSet<Incarnation>,
    /// It stands there exactly.
    pub(super) sure: bool,
    /// The names, and the mod revisions their keys are known, or guessed, to have.
    pub(super) keys: Vec<(Key, Revision)>,
    /// A write is under way.
    pub(super) writing: bool,
    /// What others have left there since it was sent: it may say that too.
    pub(super) inherited: BTreeSet<Incarnation>,
    failures: u32,
}

impl Publication {
    fn nothing(keys: Vec<(Key, Revision)>) -> Self {
        Self {
            may: BTreeSet::new(),
            provided: BTreeSet::new(),
            sure: true,
            keys,
            writing: false,
            inherited: BTreeSet::new(),
            failures: 0,
        }
    }
}

impl Publication {
    /// A write of this is under way from now on.
    pub(super) fn writes(&mut self, waits: &Waits) {
        self.writing = true;
        self.sure = false;
        self.inherited.clear();
        self.may.extend(waits.keys.iter().cloned());
    }

    /// Whether what stands there is what there is to say.
    fn says(&self, waits: &Waits) -> bool {
        self.sure && self.may == waits.keys && self.provided == waits.provided
    }
}

/// A key that is held, to be written.
#[derive(Debug, Clone)]
pub(super) struct HeldKey {
    pub(super) key: Key,
    pub(super) created: Revision,
    lease: LeaseId,
}

impl Core {
    /// The key of a name, if this call holds it.
    pub(super) fn held_key(&self, name: &Key, holder: CallId) -> Option<HeldKey> {
        let queue = self.queues.get(name)?;
        let Slot::Held {
            lease,
            created,
            lost: false,
            ..
        } = queue.slot
        else {
            return None;
        };
        let l = self.leases.get(&lease).filter(|l| l.is_alive())?;
        queue.slot.is_held_by(holder).then(|| HeldKey {
            key: queue.own_key(l.id),
            created,
            lease: l.id,
        })
    }

    /// Writes what the holder's task depends on, unless it stands there or a write is under way.
    pub(super) fn publish(&mut self, now: Moment, holder: CallId) {
        let waits = self.waits_of(holder);
        let Some(names) = self.calls.get(&holder).map(|c| c.names.clone()) else {
            return;
        };
        if waits.keys.is_empty() && !self.deadlocks.publications.contains_key(&holder) {
            return;
        }
        let guessed = self.guessed(holder, &names);
        let publications = &mut self.deadlocks.publications;
        let publication = publications.entry(holder);
        let publication = publication.or_insert_with(|| Publication::nothing(guessed));
        if publication.writing || publication.says(&waits) {
            return;
        }
        let keys = publication.keys.clone();
        let (when, then) = self.rewrite(holder, &keys, &waits);
        let or_else = reads(&then);
        if then.is_empty() {
            return drop(self.deadlocks.publications.remove(&holder)); // all of it is lost
        }
        if let Some(publication) = self.deadlocks.publications.get_mut(&holder) {
            publication.writes(&waits);
        }
        let txn = Txn {
            when,
            then,
            or_else,
        };
        self.send(now, Request::Txn(txn), Exchange::Publish { holder, waits });
    }

    fn guessed(&self, holder: CallId, names: &[Key]) -> Vec<(Key, Revision)> {
        let guessed = names.iter().filter_map(|name| {
            let held = self.held_key(name, holder)?;
            Some((name.clone(), held.created))
        });
        guessed.collect()
    }

    /// The keys of a holder go, and what is written there with them; or they stay with others, who are to unwrite it (rule P37).
    pub(super) fn unpublish(&mut self, now: Moment, holder: CallId) {
        let Some(publication) = self.deadlocks.publications.remove(&holder) else {
            return;
        };
        if publication.may.is_empty() {
            return;
        }
        for (name, _) in &publication.keys {
            let slot = self.queues.get(name).map(|queue| &queue.slot);
            let others = slot.and_then(|slot| slot.holders().find(|of| *of != holder));
            let Some(other) = others else {
                continue;
            };
            let names = self.calls.get(&other).map(|c| c.names.clone());
            let guessed = self.guessed(other, &names.unwrap_or_else(|| [].into()));
            let theirs = self.deadlocks.publications.entry(other);
            let theirs = theirs.or_insert_with(|| Publication::nothing(guessed));
            theirs.may.extend(publication.may.iter().cloned());
            theirs.provided.extend(publication.provided.iter().cloned());
            theirs.inherited.extend(publication.may.iter().cloned());
            theirs.sure = false;
            self.publish(now, other);
        }
    }

    /// What the others say on a key that one holds with them.
    fn waits_beside(&self, holder: CallId, slot: &Slot) -> Waits {
        let mut waits = Waits::default();
        for other in slot.holders().filter(|of| *of != holder) {
            steps::count(1);
            if self.deadlocks.publications.contains_key(&other) {
                waits.extend(self.waits_of(other));
            }
        }
        waits
    }

    /// A key of a holder was put by a stranger, or in repair of that, and says nothing any more: it is written again, or others
    /// would look for a way through it in vain.
    pub(super) fn publish_again(&mut self, now: Moment, holder: CallId) {
        if let Some(publication) = self.deadlocks.publications.get_mut(&holder) {
            publication.sure = false;
            self.publish(now, holder);
        }
    }

    /// The body of a holder is gone, and its keys are to stay: they say nothing of its waits any more, if they are as they are
    /// thought to be. If not, what is put next says so.
    pub(super) fn unwrite(&mut self, now: Moment, holder: CallId) {
        let Some(publication) = self.deadlocks.publications.get(&holder) else {
            return;
        };
        let waits = Waits::default();
        let (when, then) = self.rewrite(holder, &publication.keys, &waits);
        if then.is_empty() {
            return;
        }
        let txn = Txn {
            when,
            then,
            or_else: Vec::new(),
        };
        self.send(now, Request::Txn(txn), Exchange::Publish { holder, waits });
    }

    /// The conditions and the puts that write this on the keys of a holder.
    pub(super) fn rewrite(
        &self,
        holder: CallId,
        keys: &[(Key, Revision)],
        own: &Waits,
    ) -> (Vec<Compare>, Vec<Op>) {
        let held = keys.iter().filter_map(|(name, revision)| {
            let HeldKey { key, lease, .. } = self.held_key(name, holder)?;
            let queue = self.queues.get(name)?;
            let record = queue.record.clone()?;
            let mut waits = self.waits_beside(holder, &queue.slot);
            waits.extend(own.clone());
            let compare = Compare::ModRevision {
                key: key.clone(),
                revision: *revision,
            };
            let value = record::waiting_for(&record, &waits);
            Some((compare, Op::Put { key, value, lease }))
        });
        held.unzip()
    }

    /// A write was answered, or not.
    pub(super) fn published(
        &mut self,
        now: Moment,
        holder: CallId,
        waits: Waits,
        result: Result<TxnAnswer, Failure>,
    ) {
        let Some(publication) = self.deadlocks.publications.get_mut(&holder) else {
            return;
        };
        publication.writing = false;
        match result {
            Ok(answer) if answer.succeeded => self.wrote(holder, waits, answer.revision),
            Ok(answer) => {
                self.read_again(holder, &answer);
                self.publish(now, holder);
            }
            Err(Failure::Unavailable(_) | Failure::Unknown(_)) => {
                let failures = publication.failures;
                publication.failures += 1;
                let again = now + self.pause(failures);
                self.at(again, Timer::Deadlock(holder));
            }
            // We may not write there: nothing stands there that did not before.
            Err(Failure::Refused { .. }) => {
                publication.may.clear();
                publication.sure = false;
            }
        }
        self.unwrite_stale(now);
        self.let_go(now);
    }

    /// This stands on the keys of a holder now.
    pub(super) fn wrote(&mut self, holder: CallId, waits: Waits, at: Revision) {
        if let Some(publication) = self.deadlocks.publications.get_mut(&holder) {
            let inherited = std::mem::take(&mut publication.inherited);
            publication.sure = inherited.is_empty();
            publication.may = waits.keys;
            publication.provided = waits.provided;
            publication.may.extend(inherited);
            publication.writing = false;
            publication.failures = 0;
            for (_, revision) in &mut publication.keys {
                *revision = at;
            }
        }
    }

    /// A write found the keys at other revisions: the next one compares those.
    pub(super) fn read_again(&mut self, holder: CallId, answer: &TxnAnswer) {
        let Some(mut keys) = self
            .deadlocks
            .publications
            .get_mut(&holder)
            .map(|publication| std::mem::take(&mut publication.keys))
        else {
            return;
        };
        let answers = answer.answers.iter().cloned();
        let found: Vec<_> = answers.filter_map(bundle::first).collect();
        keys.retain_mut(|(name, revision)| {
            let Some(held) = self.held_key(name, holder) else {
                return false;
            };
            let kv = found.iter().find(|kv| kv.key == held.key.as_bytes());
            // Gone, or in other hands: a look will tell, and nothing of ours stands there.
            let Some(kv) = kv.filter(|kv| kv.create_revision == held.created) else {
                return false;
            };
            *revision = kv.mod_revision;
            true
        });
        if let Some(publication) = self.deadlocks.publications.get_mut(&holder) {
            publication.keys = keys;
            publication.sure = false;
        }
    }

    /// Whether something may stand on the keys of a holder that is not so, or soon will not be.
    fn is_stale(&self, holder: CallId) -> bool {
        steps::count(1);
        let Some(publication) = self.deadlocks.publications.get(&holder) else {
            return false;
        };
        let waits = self.waits_of(holder);
        let said = !publication.may.is_empty();
        let provided = waits.provided.is_subset(&publication.provided);
        !publication.may.is_subset(&waits.keys) || (said && !provided)
    }

    /// Writes anew what is no longer so. Cheap where nothing is written, which is nearly always.
    pub(super) fn unwrite_stale(&mut self, now: Moment) {
        let holders: Vec<CallId> = self.deadlocks.publications.keys().copied().collect();
        steps::count(holders.len());
        for holder in holders {
            if self.is_stale(holder) {
                self.publish(now, holder);
            }
        }
    }

    /// The wait of a call is over: whether it must be heard of first, because others follow its edges.
    pub(super) fn clears_first(&mut self, now: Moment, call: CallId) -> bool {
        if !self.deadlocks.leaving.insert(call) {
            return false; // it took too long
        }
        self.unwrite_stale(now);
        if !self.is_followed(call) {
            return false;
        }
        let over = now + CLEARING;
        if let Some(c) = self.calls.get_mut(&call) {
            c.until = Some(over);
        }
        self.at(over, Timer::Wait(call));
        true
    }

    /// Whether another process may count on an edge of this call, which is leaving, or is being told of its abort.
    fn is_followed(&self, call: CallId) -> bool {
        let publications = &self.deadlocks.publications;
        self.deadlocks.aborting.contains(&call)
            || publications.keys().any(|holder| self.is_stale(*holder))
    }

    /// Tells the calls that gave up so, once nobody follows their edges any more.
    pub(super) fn let_go(&mut self, now: Moment) {
        let leaving: Vec<CallId> = self.deadlocks.leaving.iter().copied().collect();
        steps::count(leaving.len());
        for call in leaving {
            if !self.is_waiting(call) {
                self.deadlocks.leaving.remove(&call);
            } else if !self.is_followed(call) {
                self.wait_over(now, call);
            }
        }
    }
}

/// Reads the keys that were to be put.
pub(super) fn reads(puts: &[Op]) -> Vec<Op> {
    let keys = puts.iter().filter_map(|op| match op {
        Op::Put { key, .. } => Some(Op::Get { key: key.clone() }),
        _ => None,
    });
    keys.collect()
}
