//! Queue of one name in etcd: the contenders that hold it and those that wait, in order.

use std::mem::{discriminant, take};

use etcd_locked_core::{Kv, LeaseId, Mode, Seat, listed_by};

use super::{Holder, KEY, getters, shown};

/// The contenders of a name at one revision of etcd: those that hold it and those that wait, oldest first.
///
/// A process queues once for all its similar calls of a name, so a contender may stand for many calls.
#[derive(Debug, Clone)]
pub struct Queue {
    name: String,
    contenders: Vec<Contender>,
}

/// One key below a name: a process that holds the name or waits for it.
#[derive(Debug, Clone)]
pub struct Contender {
    key: Vec<u8>,
    created: i64,
    changed: i64,
    lease: Option<LeaseId>,
    seat: Seat,
    holder: Option<Holder>,
    group: Vec<String>,
    standing: Standing,
}

/// How a contender shares its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sharing {
    /// Alone. Contenders of other etcd clients, such as `etcdctl lock`, are exclusive too.
    Exclusive,
    /// With other readers.
    Shared,
    /// With other holders of permits. Only its calls know how many permits there are.
    Permit,
}

impl Sharing {
    /// Returns one word for it: `exclusive`, `shared` or `permit`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Permit => "permit",
        }
    }

    pub(crate) fn of(mode: Mode) -> Self {
        match mode {
            Mode::Exclusive => Self::Exclusive,
            Mode::Shared => Self::Shared,
            Mode::Permits(_) => Self::Permit,
        }
    }
}

/// Whether a contender holds its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// It holds the name, or is about to.
    Holds,
    /// A permit behind older ones: it holds the name if there are enough permits.
    MayHold,
    /// It waits.
    Waits,
}

impl Queue {
    pub(crate) fn new(name: String, mut keys: Vec<Kv>) -> Self {
        keys.sort_by_key(|kv| kv.create_revision);
        let mut contenders = Vec::with_capacity(keys.len());
        // One seat of each kind among the older contenders.
        let mut older: Vec<Seat> = Vec::new();
        for kv in keys {
            let seat = Seat::of_key(&kv.key);
            let holder = Holder::parse(&kv.value);
            let standing = Standing::of(seat, holder.as_ref(), &older);
            if !older.iter().any(|it| discriminant(it) == discriminant(&seat)) {
                older.push(seat);
            }
            let listed = listed_by(&kv);
            let group = listed.iter().filter(|(_, created)| *created == kv.create_revision);
            contenders.push(Contender {
                created: kv.create_revision.get(),
                changed: kv.mod_revision.get(),
                lease: kv.lease.filter(|lease| *lease != 0),
                seat,
                group: group.map(|(key, _)| shown(key, KEY)).collect(),
                holder,
                standing,
                key: kv.key,
            });
        }
        Self { name, contenders }
    }

    getters! { self:
        /// Returns the name as in etcd, without the prefix. Bytes that are not text are escaped.
        name: &str = &self.name;
        /// Returns all contenders, oldest first.
        contenders: &[Contender] = &self.contenders;
    }

    /// Returns the contenders that hold the name, and permits that may hold it.
    pub fn holders(&self) -> impl Iterator<Item = &Contender> {
        self.contenders.iter().filter(|it| it.standing != Standing::Waits)
    }

    /// Returns the contenders that wait, in the order in which they will be served.
    pub fn waiters(&self) -> impl Iterator<Item = &Contender> {
        self.contenders.iter().filter(|it| it.standing == Standing::Waits)
    }
}

impl Contender {
    getters! { self:
        /// Returns its key in etcd.
        key: &[u8] = &self.key;
        /// Returns its key in a printable form: escaped and cut.
        shown_key: String = shown(&String::from_utf8_lossy(&self.key), KEY);
        /// Returns the revision at which its key was created, which is its place in the queue. Together with the key, it identifies the
        /// contender, because keys are reused.
        created: i64 = self.created;
        /// Returns the revision at which its key was last written. A process hands a key from one of its calls to the next without a
        /// write, and writes the key after a call has held it for a second.
        changed: i64 = self.changed;
        /// Returns the lease of its key. `None` means that the key never expires: delete it once its owner is known to be gone.
        lease: Option<i64> = self.lease;
        /// Returns how it shares the name.
        sharing: Sharing = Sharing::of(self.seat.mode());
        /// Returns whether it holds the name.
        standing: Standing = self.standing;
        /// Returns its process's record; `None` for another kind of client, or for a key that an operator put there.
        holder: Option<&Holder> = self.holder.as_ref();
        /// Returns the other keys of its call, if that requested several names at once: they are lost together.
        group: &[String] = &self.group;
    }
}

impl Standing {
    /// Returns the standing of a contender behind others; `older` has one seat of each kind among them.
    fn of(seat: Seat, holder: Option<&Holder>, older: &[Seat]) -> Self {
        let mode = seat.mode();
        if older.iter().any(|older| mode.is_excluded_by(*older)) {
            return Self::Waits;
        }
        let is_permit = matches!(seat, Seat::Permit(_));
        let is_known = holder.is_some_and(|holder| holder.held_since().is_some());
        match is_permit && !older.is_empty() && !is_known {
            true => Self::MayHold,
            false => Self::Holds,
        }
    }
}

/// Queues built from the keys of many names, in etcd's order. A name is complete once a key arrives that is not below it.
#[derive(Debug)]
pub(crate) struct Queues {
    prefix: String,
    /// Names that are not complete: each is below the one before it.
    open: Vec<(Vec<u8>, Vec<Kv>)>,
    /// Keys directly below the prefix, which belong to no name.
    strays: Vec<Kv>,
}

impl Queues {
    pub(crate) fn new(prefix: String) -> Self {
        Self { prefix, open: Vec::new(), strays: Vec::new() }
    }

    /// Adds the next key, and returns the queues that are now complete.
    pub(crate) fn take(&mut self, kv: Kv) -> Vec<Queue> {
        let end = kv.key.iter().rposition(|byte| *byte == b'/');
        let family = kv.key[..end.map_or(0, |at| at + 1)].to_vec();
        let over = |open: &(Vec<u8>, Vec<Kv>)| !kv.key.starts_with(&open.0);
        let first = self.open.iter().position(over).unwrap_or(self.open.len());
        let whole = self.close(first);
        match self.open.last_mut() {
            _ if family == self.prefix.as_bytes() => self.strays.push(kv),
            Some((last, keys)) if *last == family => keys.push(kv),
            _ => self.open.push((family, vec![kv])),
        }
        whole
    }

    pub(crate) fn strays(&mut self) -> Vec<Contender> {
        Queue::new(String::new(), take(&mut self.strays)).contenders
    }

    /// Removes the names from index `first` on, which are complete, and returns their queues.
    pub(crate) fn close(&mut self, first: usize) -> Vec<Queue> {
        let over = self.open.drain(first..).rev();
        over.filter_map(|(family, keys)| {
            let name = family.strip_prefix(self.prefix.as_bytes())?.strip_suffix(b"/")?;
            Some(Queue::new(shown(&String::from_utf8_lossy(name), KEY), keys))
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use etcd_locked_core::Revision;

    use super::*;

    fn kv(key: &str, created: i64) -> Kv {
        let revision = Revision::new(created).unwrap();
        Kv {
            key: key.into(),
            value: Vec::new(),
            create_revision: revision,
            mod_revision: revision,
            lease: Some(1),
        }
    }

    fn standings(keys: &[&str]) -> Vec<Standing> {
        let keys = keys.iter().zip(1..).map(|(key, at)| kv(key, at)).collect();
        let queue = Queue::new("a".into(), keys);
        queue.contenders().iter().map(Contender::standing).collect()
    }

    #[test]
    fn the_oldest_holds_and_those_it_excludes_wait() {
        use Standing::{Holds, MayHold, Waits};
        assert_eq!(standings(&["a/1", "a/2", "a/3.r0"]), [Holds, Waits, Waits]);
        assert_eq!(standings(&["a/1.r0", "a/2.r0", "a/3"]), [Holds, Holds, Waits]);
        assert_eq!(standings(&["a/1.r0", "a/2", "a/3.r0"]), [Holds, Waits, Waits]);
        assert_eq!(standings(&["a/1.p0", "a/2.p0", "a/3.r0"]), [Holds, MayHold, Waits]);
        assert_eq!(standings(&["a/x", "a/1"]), [Holds, Waits]);
    }

    #[test]
    fn names_come_whole_whatever_is_below_them() {
        let mut queues = Queues::new("l/".into());
        let keys = ["l/1", "l/a/1", "l/a/b/1", "l/a/b/c/1", "l/a/f", "l/b/1", "l/b/2"];
        let mut whole: Vec<Queue> = Vec::new();
        for (key, at) in keys.iter().zip(1..) {
            whole.extend(queues.take(kv(key, at)));
        }
        whole.extend(queues.close(0));
        let names: Vec<_> =
            whole.iter().map(|queue| (queue.name(), queue.contenders().len())).collect();
        assert_eq!(names, [("a/b/c", 1), ("a/b", 1), ("a", 2), ("b", 2)]);
        let strays = queues.strays();
        let strays: Vec<_> = strays.iter().map(Contender::key).collect();
        assert_eq!(strays, [b"l/1"]);
    }
}
