//! How a process is told where its keys stand: what is watched, and what news of it means (rules P14 to P18).

use crate::clock::Moment;
use crate::core::looks::FLOOR;
use crate::core::mode::Seat;
use crate::core::queue::{Queue, Slot, Watched};
use crate::core::record;
use crate::core::request::{Event, Key, Revision, WatchNews};
use crate::core::{Core, Output, WatchId};
use crate::error::LossCause;

impl Core {
    /// Sees to it that what matters of a name is watched from this revision on, at which it was read.
    pub(super) fn watch_others(&mut self, now: Moment, name: &Key, revision: Revision) {
        let Some(queue) = self.queues.get(name) else {
            return;
        };
        let watched = queue.watch.as_ref();
        let all = watched.is_some_and(|watched| watched.prefix == queue.family);
        let many = match (all, watched) {
            (false, Some(_)) => self.settings.near / 2,
            _ => self.settings.near,
        };
        // A permit may come free long before the last of those before us has gone.
        let by_turns = queue.seat.mode().beside().is_none_or(|beside| beside == 0);
        let last = match queue.slot {
            Slot::Queued(_) if by_turns && queue.predecessors.count() > many => {
                queue.predecessors.last()
            }
            _ => None,
        };
        let last = last.and_then(|key| std::str::from_utf8(key).ok());
        let own = self.own_key_alone(queue);
        let prefix = own.or_else(|| last.map(Key::from));
        let prefix = prefix.unwrap_or_else(|| queue.family.clone());
        // Who waits is served when others go: to be told of all who come would be twice as dear. Whoever holds on is to hear
        // of a stranger's hand on its key (rule P18), and of who waits for it.
        let puts = matches!(queue.slot, Slot::Held { .. });
        if watched.is_none_or(|watched| watched.prefix != prefix || watched.puts != puts) {
            self.open_watch(now, name, prefix, puts, revision);
        }
    }

    /// The key of a place that is held with others: whoever waits for it is looked for when that matters, and to have every
    /// holder of a permit told of all that happens below the name would be dear.
    fn own_key_alone(&self, queue: &Queue) -> Option<Key> {
        match queue.slot {
            Slot::Held { lease, .. } if queue.seat != Seat::Exclusive => {
                Some(queue.own_key(self.leases.get(&lease)?.id))
            }
            _ => None,
        }
    }

    /// Watches all keys that begin with this, in place of what was watched for the name.
    fn open_watch(&mut self, now: Moment, name: &Key, prefix: Key, puts: bool, from: Revision) {
        let id = self.new_id();
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        queue.reads = 0;
        let watched = Watched {
            id,
            prefix: prefix.clone(),
            puts,
            opened: now,
        };
        if let Some(before) = queue.watch.replace(watched) {
            self.watches.remove(&before.id);
            self.outputs.push_back(Output::Unwatch { id: before.id });
        }
        self.watches.insert(id, name.clone());
        self.outputs.push_back(Output::Watch {
            id,
            prefix,
            from,
            puts,
        });
    }

    /// The name has been held for a while: its key is watched from now on, so that an operator's hand is felt.
    pub(super) fn guard(&mut self, now: Moment, name: &Key) {
        let Some(queue) = self.queues.get(name) else {
            return;
        };
        if let Slot::Held {
            seen, lost: false, ..
        } = queue.slot
        {
            self.watch_others(now, name, seen);
            // Whoever came to its turn by what was told has never read its own key.
            self.looks.insert(name.clone());
            let floor = self.jittered(FLOOR);
            self.look_again(now, name, floor);
        }
    }

    /// A watch told something.
    pub(super) fn news(&mut self, now: Moment, watch: WatchId, news: WatchNews) {
        let Some(name) = self.watches.get(&watch).cloned() else {
            return;
        };
        let Some(queue) = self.queues.get_mut(&name) else {
            return;
        };
        let watched = queue.watch.as_ref().filter(|watched| watched.id == watch);
        let Some(Watched { prefix, .. }) = watched else {
            return;
        };
        let alone = *prefix != queue.family;
        let event = match news {
            WatchNews::Event(event) => event,
            WatchNews::Compacted => {
                self.watches.remove(&watch);
                queue.watch = None;
                self.looks.insert(name);
                return;
            }
        };
        let Some(id) = queue
            .slot
            .lease()
            .and_then(|lease| Some(self.leases.get(&lease)?.id))
        else {
            return;
        };
        let own = queue.own_key(id);
        let Some(created) = queue.slot.created() else {
            // While ours is being put, the others go; or it is, and then the answer will show what is not any more.
            match event {
                Event::Delete { key, revision } if key == own.as_bytes() => {
                    queue.predecessors.touched = revision.max(queue.predecessors.touched);
                }
                Event::Delete { key, revision } => {
                    queue.predecessors.deleted(&key, revision);
                }
                Event::Put(_) => {}
            }
            return;
        };
        match event {
            Event::Put(kv) if kv.key == own.as_bytes() => {
                if kv.create_revision > created {
                    self.own_key_gone(now, &name, LossCause::Overwritten);
                } else if kv.create_revision == created && kv.lease != id {
                    self.repair(now, &name, &kv);
                }
            }
            Event::Delete { key, revision } if key == own.as_bytes() => {
                if revision > created {
                    self.own_key_gone(now, &name, LossCause::Deleted);
                }
            }
            // That a predecessor has gone does not make us the owner, only that all have (rule P14).
            Event::Delete { key, revision } => {
                let Slot::Queued(queued) = &mut queue.slot else {
                    return;
                };
                if queue.predecessors.deleted(&key, revision) && queued.ready.is_none() {
                    queued.ready = queue.predecessors.let_in(queue.seat.mode());
                    if queued.ready.is_some() {
                        self.advance(now, &name);
                    } else if alone {
                        self.looks.insert(name);
                    }
                }
            }
            // Whoever comes after us waits for us (rule P23). What is watched for its own sake has keys beside it that begin as it
            // does, and keep nobody waiting.
            Event::Put(kv) if !alone && queue.contends(&kv.key) && kv.create_revision > created => {
                if let Slot::Held { run, .. } = &mut queue.slot {
                    run.met(now, record::incarnation(kv));
                }
            }
            Event::Put(_) => {}
        }
    }
}
