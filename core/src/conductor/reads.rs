//! Reads and watches.

use std::collections::BTreeMap;

use super::{Core, Exchange, ReadItem};
use crate::contender::{Part, State};
use crate::ids::{ContenderId, Key, Name, Revision, WatchId, contends};
use crate::mistakes::{Mistake, mistake};
use crate::moment::Moment;
use crate::observe::{HOLDER, RELIES, WAITER};
use crate::output::{LossCause, Output};
use crate::request::{Event, Failure, Kv, Op, OpAnswer, Request, TxnAnswer, WatchEvent};
use crate::seat::Seat;
use crate::timers::Timer;
use crate::transactions::{self};

impl Core {
    pub(super) fn flush_reads(&mut self) {
        while self.may_send() {
            let contenders = &self.contenders;
            let count = |id: ContenderId| {
                let found = contenders
                    .get(id)
                    .filter(|contender| !contender.is_detached());
                found
                    .filter(|contender| contender.created().is_some())
                    .map_or(0, |contender| contender.parts().len())
            };
            let Some(next) = self.observe.next_read(count) else {
                return;
            };
            let mut items = Vec::new();
            let mut ops: Vec<Op> = Vec::new();
            for id in next {
                let Some(contender) = self.contenders.get(id) else {
                    continue;
                };
                let Some(created) = contender.created() else {
                    continue;
                };
                let held = !contender.is_in_line();
                for (at, part) in contender.parts().iter().enumerate() {
                    let deep = self
                        .queues
                        .get(&part.name)
                        .is_some_and(|queue| queue.is_deep());
                    // A watch of the last predecessor alone has reported: most likely nothing is ahead any more, and each range goes
                    // through all keys of the family at etcd.
                    let last = self
                        .observe
                        .watch(&part.name)
                        .filter(|watch| watch.prefix != part.family);
                    let gone =
                        last.is_some_and(|watch| part.predecessors().has_lost(&watch.prefix));
                    let owner = !held && !gone;
                    match held {
                        true => ops.extend(transactions::read_behind(
                            &part.key,
                            &part.family,
                            deep || part.seat != crate::seat::Seat::Exclusive,
                        )),
                        false => ops.extend(transactions::read_before(
                            &part.family,
                            created,
                            deep,
                            owner,
                        )),
                    }
                    items.push(ReadItem {
                        contender: id,
                        part: at,
                        created,
                        held,
                        deep,
                        owner,
                    });
                }
            }
            self.send(
                Request::Txn(transactions::reads(ops)),
                Exchange::Read(items),
            );
        }
    }

    /// A contender waits: what excludes it is watched from this revision on, or read. Then the head of its names is served.
    pub(super) fn watch_predecessors(&mut self, id: ContenderId, revision: Revision) {
        let Some(contender) = self.contenders.get(id) else {
            return;
        };
        let names = contender.names().clone();
        let (admitted, group) = (contender.is_admitted(), names.len() > 1);
        if !contender
            .parts()
            .iter()
            .all(|part| part.admitted().is_some() || part.predecessors().are_known())
        {
            self.observe.restart(id);
            self.observe.read(id, true);
        } else if !admitted || group {
            self.watch(id, revision);
            self.read_later(id, false);
        }
        names.iter().for_each(|name| self.work.push(name));
    }

    /// When a contender that waits is read next: early beside a fresh watch, and in time for its call to learn who owns the name.
    pub(super) fn read_later(&mut self, id: ContenderId, was_read: bool) {
        let Some((contender, name)) = self
            .contenders
            .get(id)
            .and_then(|it| Some((it, it.names().first()?)))
        else {
            return;
        };
        let whole = contender
            .parts()
            .first()
            .is_some_and(|part| self.observe.is_watched(name, &part.family, false));
        let early = self.observe.next_after(self.now, name, id, whole);
        let until = self
            .queues
            .get(name)
            .and_then(|queue| self.calls.waiting(queue.head()?.call)?.until);
        let rest = until.map_or(RELIES, |until| ((until - self.now) / 2).min(RELIES));
        let after = match early {
            Some(early) => early,
            None if was_read => self.jittered(WAITER),
            None => rest,
        };
        self.timers.set(Timer::Read(id), self.now + after);
    }

    /// Watches what matters of the names of a contender, from this revision on.
    pub(super) fn watch(&mut self, id: ContenderId, revision: Revision) {
        let Some(contender) = self.contenders.get(id) else {
            return;
        };
        let waits = contender.is_in_line();
        let mut wanted: Vec<(Name, Key, bool)> = Vec::new();
        for part in contender.parts() {
            let queue = self.queues.get(&part.name);
            let prefix: Key = match waits {
                // A holder watches its own keys, so that an operator's hand is felt (rule P18). What this process has below the name
                // begins alike, as long as it is of one session.
                false => {
                    let more = queue.is_some_and(|queue| queue.in_line().is_some());
                    match part.key.split_once(&*part.family) {
                        Some((_, child)) if !more => {
                            let lease = child.split('.').next().unwrap_or(child);
                            [&*part.family, lease].concat().into()
                        }
                        _ => continue, // one that waits watches the whole family
                    }
                }
                true => {
                    let near = match self.observe.watch(&part.name) {
                        Some(watch) if watch.prefix != part.family => self.settings.near / 2,
                        _ => self.settings.near,
                    };
                    // A permit may come free long before the last of those before it has gone.
                    let one = part.seat == Seat::Exclusive && part.predecessors().count() > near;
                    let last = part.predecessors().last().filter(|_| one);
                    last.map_or(part.family.clone(), Key::from)
                }
            };
            wanted.push((part.name.clone(), prefix, !waits));
        }
        for (name, prefix, puts) in wanted {
            if self.observe.is_watched(&name, &prefix, puts) {
                continue;
            }
            self.last_watch += 1;
            let watch = WatchId::from(self.last_watch);
            if let Some(id) = self
                .observe
                .open(self.now, watch, &name, prefix.clone(), puts)
            {
                self.outputs.push_back(Output::Unwatch(id));
            }
            self.observe.restart(id);
            self.outputs.push_back(Output::Watch {
                id: watch,
                prefix,
                from: revision,
                puts,
            });
        }
    }

    /// A contender is to be read; or one that is held is watched from now on.
    pub(super) fn read_due(&mut self, id: ContenderId) {
        let Some(contender) = self.contenders.get(id).filter(|it| !it.is_detached()) else {
            return;
        };
        let Some(created) = contender.created() else {
            return;
        };
        let held = contender.ownership();
        let watched = |part: &Part| {
            self.observe
                .watch(&part.name)
                .is_some_and(|watch| watch.puts)
        };
        let unwatched = !contender.parts().iter().all(watched);
        let held = match held {
            Some(ownership) if unwatched && !ownership.is_asked() => {
                // From its create revision on: whatever happened to its keys since is reported.
                self.watch(id, created);
                let next = self.jittered(HOLDER);
                return self.timers.set(Timer::Read(id), self.now + next);
            }
            held => held.is_some(),
        };
        self.observe.read(id, !held);
    }

    /// A read came from a member that lags, or from an etcd that has lost its history (rules P20, P35): a write finds out which.
    pub(super) fn read_stale(&mut self, items: Vec<ReadItem>) {
        let session = items
            .first()
            .and_then(|item| self.contenders.get(item.contender))
            .map(|it| it.session());
        if let Some(id) = session.filter(|_| !mistake(Mistake::OnlyAWipeIsLostHistory))
            && let Some(session) = self.sessions.get_mut(id)
        {
            session.barrier_mut().suspect();
            self.dirty.insert(id);
        }
        self.read_again(items);
    }

    pub(super) fn read_again(&mut self, items: Vec<ReadItem>) {
        let mut ids: Vec<ContenderId> = items.into_iter().map(|item| item.contender).collect();
        ids.dedup();
        self.observe.read_done(&ids);
        for id in ids {
            let pause = self.pause(self.exchanges.failures());
            if self
                .contenders
                .get(id)
                .is_some_and(|it| it.created().is_some() && !it.is_detached())
            {
                self.timers.set(Timer::Read(id), self.now + pause);
            }
        }
    }

    /// A read was answered, or not.
    pub(super) fn read(
        &mut self,
        items: Vec<ReadItem>,
        sent: Moment,
        result: Result<TxnAnswer, Failure>,
    ) {
        let Ok(answer) = result else {
            return self.read_again(items);
        };
        let mut ids: Vec<ContenderId> = items.iter().map(|item| item.contender).collect();
        ids.dedup();
        self.observe.read_done(&ids);
        let mut answers = answer.answers.into_iter();
        // A group's keys are contended if one of them is.
        let mut behind: BTreeMap<ContenderId, bool> = BTreeMap::new();
        for item in &items {
            let many = match item.held {
                true => 2,
                false => 1 + usize::from(item.owner && !item.deep),
            };
            let found: Vec<Vec<Kv>> = answers.by_ref().take(many).map(OpAnswer::found).collect();
            match item.held {
                true => {
                    if let Some(contended) = self.saw_behind(item, found) {
                        *behind.entry(item.contender).or_default() |= contended;
                    }
                }
                false => self.saw_before(item, answer.revision, found),
            }
        }
        for (id, contended) in behind {
            let now = self.now;
            let contender = self.contenders.get_mut(id);
            if let Some(ownership) = contender.and_then(|it| it.ownership_mut()) {
                ownership.read(now, sent, contended);
            }
        }
        for id in ids {
            self.after_read(id, answer.revision);
        }
    }

    /// Whether a contender waits behind a held key; `None` if that is not known.
    pub(super) fn saw_behind(&mut self, item: &ReadItem, found: Vec<Vec<Kv>>) -> Option<bool> {
        let contender = self.contenders.get(item.contender)?;
        let part = contender.parts().get(item.part)?;
        let lease = self
            .sessions
            .get(contender.session())
            .and_then(|session| session.lease());
        let retained = matches!(contender.state(), State::Retained { .. });
        if contender.created() != Some(item.created) {
            return None;
        }
        let mut found = found.into_iter();
        let own = found.next().and_then(|own| own.into_iter().next());
        let lost = match own.filter(|kv| kv.create_revision == item.created) {
            Some(kv) if retained || Some(kv.lease) == lease => None,
            Some(_) => Some(LossCause::Overwritten),
            None => Some(LossCause::Deleted),
        };
        if let Some(cause) = lost {
            self.own_key_gone(item.contender, cause);
            return None;
        }
        let others: Vec<Kv> = found.next().unwrap_or_default();
        let mode = contender.mode();
        let deeper = |kv: &Kv| !contends(&part.family, &kv.key);
        if others.first().is_some_and(deeper) && !item.deep {
            // One key is not enough to see a contender among the deeper keys (rule P2).
            self.queues.get_mut(&part.name)?.set_deep();
            self.observe.read(item.contender, true);
            return None;
        }
        // What this process itself has below the name keeps no other process waiting for long.
        let mut all = 0;
        let behind = others.iter().filter(|kv| !deeper(kv)).any(|kv| {
            let excluded = mode.is_excluded_by(Seat::of_key(&kv.key));
            all += usize::from(!excluded);
            let full = mode.room().is_some_and(|room| all > room + 1);
            let waits = (excluded && kv.create_revision > item.created) || full;
            waits && self.contenders.by_key(&kv.key).is_none()
        });
        if behind {
            self.queues.get_mut(&part.name)?.see_foreign(self.now);
        }
        Some(behind)
    }

    /// What is ahead of a waiting key.
    pub(super) fn saw_before(&mut self, item: &ReadItem, revision: Revision, found: Vec<Vec<Kv>>) {
        let lease = self
            .contenders
            .get(item.contender)
            .and_then(|it| self.sessions.get(it.session())?.lease());
        let Some(contender) = self
            .contenders
            .get_mut(item.contender)
            .filter(|it| it.is_in_line() && it.created() == Some(item.created))
        else {
            return;
        };
        let Some(part) = contender.parts().get(item.part) else {
            return;
        };
        let (name, family, mode) = (part.name.clone(), part.family.clone(), contender.mode());
        let mut found = found.into_iter();
        let older = found.next().unwrap_or_default();
        let own = older.iter().find(|kv| kv.key == part.key.as_bytes());
        match own.filter(|kv| kv.create_revision == item.created) {
            Some(kv) if Some(kv.lease) == lease => {}
            Some(_) => return self.own_key_gone(item.contender, LossCause::Overwritten),
            None => return self.own_key_gone(item.contender, LossCause::Deleted),
        }
        let excludes = |kv: &&Kv| {
            kv.create_revision < item.created
                && contends(&family, &kv.key)
                && mode.is_excluded_by(Seat::of_key(&kv.key))
        };
        let oldest = match item.deep {
            true => {
                let mut contenders = older
                    .iter()
                    .filter(|kv| kv.create_revision < item.created && contends(&family, &kv.key));
                older.iter().find(excludes).or(contenders.next()).cloned()
            }
            false => found.next().and_then(|oldest| oldest.into_iter().next()),
        };
        contender.read(item.part, revision, older);
        let admitted = contender
            .parts()
            .get(item.part)
            .is_some_and(|part| part.admitted().is_some());
        let Some(queue) = self.queues.get_mut(&name) else {
            return;
        };
        queue.hear(self.now);
        match oldest {
            _ if admitted => queue.set_owner(None),
            // Who it is that owns the name was not read.
            None => {
                if !item.owner {
                    self.observe.read(item.contender, true);
                }
            }
            Some(kv) if !contends(&family, &kv.key) => {
                queue.set_deep();
                self.observe.read(item.contender, true);
            }
            Some(kv) => {
                queue.see_foreign(self.now);
                queue.set_owner(Some(kv.value.into()));
            }
        }
    }

    /// A contender was read: it is watched from this revision on, and read again later; its names may have a next step.
    pub(super) fn after_read(&mut self, id: ContenderId, revision: Revision) {
        let Some(contender) = self.contenders.get(id).filter(|it| !it.is_detached()) else {
            return;
        };
        let names = contender.names().clone();
        match contender.state() {
            State::Waiting { .. } if !contender.is_admitted() || names.len() > 1 => {
                self.watch(id, revision);
                self.read_later(id, true);
            }
            State::Owned(_)
                if contender.parts().iter().any(|part| {
                    self.observe
                        .watch(&part.name)
                        .is_some_and(|watch| watch.puts)
                }) =>
            {
                let next = self.jittered(HOLDER);
                self.timers.set(Timer::Read(id), self.now + next);
            }
            _ => {}
        }
        names.iter().for_each(|name| self.work.push(name));
    }

    /// A key of ours is gone, or was put by another client.
    pub(super) fn own_key_gone(&mut self, id: ContenderId, cause: LossCause) {
        let Some(contender) = self.contenders.get(id) else {
            return;
        };
        let session = contender.session();
        match contender.state() {
            State::Owned(ownership) if !ownership.is_lost() => self.lose_contender(id, cause),
            // What is left of it is in the way: out with it before the queue goes on.
            State::Waiting { .. } => self.delete(id),
            _ => return,
        }
        // Perhaps the whole lease is gone: the sooner that is known, the sooner the others go on.
        self.renew(session);
    }

    /// A watch reported something.
    pub(super) fn watch_event(&mut self, watch: WatchId, event: WatchEvent) {
        let Some(name) = self.observe.name_of(watch).cloned() else {
            return;
        };
        let event = match event {
            WatchEvent::Changed(event) => event,
            WatchEvent::Compacted => {
                self.observe.close(&name);
                let queue = self.queues.get(&name);
                let known = queue
                    .into_iter()
                    .flat_map(|queue| queue.held().chain(queue.in_line()));
                known
                    .collect::<Vec<_>>()
                    .into_iter()
                    .for_each(|id| self.observe.read(id, true));
                return;
            }
        };
        match event {
            Event::Delete { key, revision } => match self.contenders.by_key(&key) {
                Some(id) => self.own_key_deleted(id, &name, &key, revision),
                None => self.other_key_deleted(&name, &key, revision),
            },
            Event::Put(kv) => {
                let Some(contender) = self
                    .contenders
                    .by_key(&kv.key)
                    .and_then(|id| Some((id, self.contenders.get(id)?)))
                else {
                    return;
                };
                let lease = self
                    .sessions
                    .get(contender.1.session())
                    .and_then(|session| session.lease());
                let created = contender.1.created();
                let other = created.is_some_and(|created| {
                    kv.create_revision > created
                        || (kv.create_revision == created && Some(kv.lease) != lease)
                });
                if other {
                    self.own_key_gone(contender.0, LossCause::Overwritten);
                }
            }
        }
    }

    pub(super) fn own_key_deleted(
        &mut self,
        id: ContenderId,
        name: &Name,
        key: &[u8],
        revision: Revision,
    ) {
        let Some(contender) = self.contenders.get_mut(id) else {
            return;
        };
        match contender.created() {
            // Of an earlier incarnation it says nothing (rule P14).
            Some(created)
                if revision > created || mistake(Mistake::DeleteOfAnEarlierIncarnation) =>
            {
                self.own_key_gone(id, LossCause::Deleted);
            }
            Some(_) => {}
            // It is being put: then the answer will show what is not any more.
            None => drop(contender.predecessor_deleted(name, key, revision)),
        }
    }

    /// That a predecessor has gone does not make a contender the owner, only that all have (rule P14).
    pub(super) fn other_key_deleted(&mut self, name: &Name, key: &[u8], revision: Revision) {
        let Some(id) = self.queues.get(name).and_then(|queue| queue.in_line()) else {
            return;
        };
        let Some(contender) = self.contenders.get_mut(id) else {
            return;
        };
        let last = contender
            .parts()
            .iter()
            .find(|part| part.name == *name)
            .and_then(|part| part.predecessors().last())
            .map(str::as_bytes)
            == Some(key);
        if last && mistake(Mistake::PredecessorGoneIsOwnership) {
            contender.read(0, revision, Vec::new());
        }
        if !contender.predecessor_deleted(name, key, revision) {
            return;
        }
        if contender.is_admitted() {
            return self.work.push(name);
        }
        let alone = self
            .observe
            .watch(name)
            .is_some_and(|watch| watch.prefix.as_bytes() == key);
        if alone {
            self.observe.read(id, true);
        }
    }

    /// A read is to show whether a contender waits behind a key of readers.
    pub(super) fn ask_behind(&mut self, id: ContenderId) {
        let now = self.now;
        let ownership = self
            .contenders
            .get_mut(id)
            .and_then(|contender| contender.ownership_mut());
        if ownership.is_some_and(|ownership| ownership.ask(now)) {
            self.observe.read(id, true);
        }
    }
}
