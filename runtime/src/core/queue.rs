//! One name in this process: the calls that want it, in order, and its key in etcd.
//!
//! The key belongs to the queue, not to a call (rules P3, P4): only the head of the queue has one that waits, and a call that
//! goes away leaves it to the next, unless it was put for a group. [`Slot`] is the state machine at the end of the protocol's
//! rules.
//!
//! Where a name is shared, it has a key in more than one place ([`place`]). Each is kept as a queue of its own, but the calls of
//! all modes stand in line at the exclusive one, which is there for as long as any other (rule P37).

use std::collections::VecDeque;
use std::num::NonZeroU16;
use std::sync::Arc;

use crate::clock::Moment;
use crate::core::bundle::Item;
use crate::core::handovers::Run;
use crate::core::lease::LeaseRef;
use crate::core::mode::Seat;
use crate::core::place;
use crate::core::predecessors::Predecessors;
use crate::core::request::{Key, Kv, LeaseId, Revision};
use crate::core::{CallId, WatchId, steps};

/// The queue of one name; or another of its places.
#[derive(Debug)]
pub(crate) struct Queue {
    /// `<prefix><name>/`: what all contenders' keys begin with.
    pub(crate) family: Key,
    /// What its key is for.
    pub(crate) seat: Seat,
    /// Calls that want the name and do not hold it, in any mode; at the exclusive place.
    pub(crate) calls: VecDeque<CallId>,
    /// At the exclusive place: how many others the name has.
    pub(crate) others: usize,
    pub(crate) slot: Slot,
    /// The group the key is put for, from Wanting to Queued: nobody else inherits it (rule P13).
    pub(crate) group: Option<CallId>,
    /// The record of whoever has the name here, or wants it: what etcd shows, but after a hand-over.
    pub(crate) record: Option<Arc<[u8]>>,
    /// The record of another process that was last seen to own the name.
    pub(crate) owner: Option<Arc<[u8]>>,
    /// Keys live deeper than the contenders: one-key reads may show those, so the whole family is read (rule P2).
    pub(crate) deep: bool,
    /// When etcd last answered about the name.
    pub(crate) heard: Option<Moment>,
    pub(crate) watch: Option<Watched>,
    /// Who is before the key that waits, or is being put.
    pub(crate) predecessors: Predecessors,
    /// The mod revision of the last foreign put on our key that was repaired; 0: none of this incarnation.
    pub(crate) repaired: Revision,
    /// A stranger has put our key, in this incarnation: it is handed on to nobody.
    pub(crate) suspected: bool,
    /// When to read the family again.
    pub(crate) reread_at: Option<Moment>,
    /// Reads since the key was put, or another watch opened; beside a fresh one the first few come early (rule P15).
    pub(crate) reads: u32,
    pub(crate) reading: bool,
}

/// The state of the name's key in etcd.
#[derive(Debug)]
pub(crate) enum Slot {
    /// Known absent, and nothing sent can create or delete it any more.
    Free,
    /// In the pending list of a lease, which may not be open yet; nothing was sent.
    Wanting { lease: LeaseRef },
    /// A put is in the net.
    Putting { lease: LeaseRef },
    /// A put may have been applied or not; a seal will tell (rule P10).
    Doubt { lease: LeaseRef },
    /// The key exists and waits.
    Queued(Queued),
    /// The key is ours and a call has it.
    Held {
        lease: LeaseRef,
        created: Revision,
        call: CallId,
        /// Who shares it with that one.
        beside: Vec<CallId>,
        seen: Revision,
        guard_at: Moment,
        lost: bool,
        run: Run,
    },
    /// The call is over, and the key stays for a while (rule P39).
    Retained,
    /// A guarded delete is in the net; nothing is put until it is answered (rule P24).
    Deleting {
        lease: LeaseRef,
        created: Revision,
        confirm: Option<CallId>,
    },
}

/// A key that waits for its turn.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) lease: LeaseRef,
    pub(crate) created: Revision,
    /// The revision of a state in which nothing older was left: it is our turn, for good (rule P14).
    pub(crate) ready: Option<Revision>,
}

/// A watch of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Watched {
    pub(crate) id: WatchId,
    /// All keys that begin with this: the family, or the predecessor's key.
    pub(crate) prefix: Key,
    /// Not only what is deleted.
    pub(crate) puts: bool,
    pub(crate) opened: Moment,
}

impl Queue {
    pub(crate) fn new(place: &str) -> Self {
        Self {
            family: place::family_of(place),
            seat: place::seat_of(place),
            calls: VecDeque::new(),
            others: 0,
            slot: Slot::Free,
            group: None,
            record: None,
            owner: None,
            deep: false,
            heard: None,
            watch: None,
            predecessors: Predecessors::default(),
            repaired: 0,
            suspected: false,
            reread_at: None,
            reads: 0,
            reading: false,
        }
    }

    /// Whether `key` contends for the name: a direct child of it (rule P2).
    pub(crate) fn contends(&self, key: &[u8]) -> bool {
        contends(&self.family, key)
    }

    /// Its key under this lease.
    pub(crate) fn own_key(&self, lease: LeaseId) -> Key {
        place::key(&self.family, lease, self.seat)
    }

    /// Its key to put, by this lease.
    pub(crate) fn item(&self, lease: LeaseId, record: Arc<[u8]>) -> Item {
        Item {
            key: self.own_key(lease),
            family: self.family.clone(),
            record,
            whole: self.watch.is_some() || self.seat != Seat::Exclusive,
        }
    }

    /// The other number of permits that a key is one of.
    pub(crate) fn disagrees(&self, kv: &Kv) -> Option<NonZeroU16> {
        self.seat.mode().mismatch(Seat::of_key(&kv.key))
    }

    /// Whether `kv`, which is older, or those like it, may keep its key waiting.
    pub(crate) fn counts(&self, kv: &Kv) -> bool {
        let mode = self.seat.mode();
        self.contends(&kv.key)
            && (mode.is_excluded_by(Seat::of_key(&kv.key)) || mode.beside().is_some())
    }

    /// A revision at which its turn had come, if it has.
    pub(crate) fn turn_at(&self) -> Option<Revision> {
        self.predecessors.let_in(self.seat.mode())
    }

    /// Whether its key waits, or is about to.
    pub(crate) fn is_in_line(&self) -> bool {
        matches!(
            self.slot,
            Slot::Wanting { .. } | Slot::Putting { .. } | Slot::Doubt { .. } | Slot::Queued(_)
        )
    }

    /// Whether, of those before it, the last one alone was watched, and has gone.
    pub(crate) fn watched_has_gone(&self) -> bool {
        let gone = |watched: &Watched| {
            watched.prefix != self.family && !self.predecessors.include(watched.prefix.as_bytes())
        };
        let known = self.seat == Seat::Exclusive && self.predecessors.are_known();
        known && self.watch.as_ref().is_some_and(gone)
    }

    /// Takes a call out of the queue.
    pub(crate) fn remove(&mut self, call: CallId) {
        if let Some(at) = self.calls.iter().position(|of| *of == call) {
            steps::count(at);
            self.calls.remove(at);
        }
    }

    /// Whether a put of its key under this lease is in the net.
    pub(crate) fn is_putting(&self, lease: LeaseRef) -> bool {
        matches!(self.slot, Slot::Putting { lease: of } if of == lease)
    }

    /// Whether its key is one to look at: it waits, or is held.
    pub(crate) fn is_watched(&self) -> bool {
        matches!(self.slot, Slot::Queued(_) | Slot::Held { lost: false, .. })
    }

    /// Who has the name, as far as this place knows: a record to show to a call that is refused.
    pub(crate) fn holder(&self) -> Option<Arc<[u8]>> {
        match self.slot {
            Slot::Held { .. } | Slot::Retained => self.record.clone(),
            Slot::Deleting { .. } => self.owner.clone().or_else(|| self.record.clone()),
            Slot::Free => None, // whoever was seen to own it when a key of ours waited may have gone
            _ => self.owner.clone(),
        }
    }
}

/// Whether `key` is a direct child of a name: no further `/` (rule P2).
pub(crate) fn contends(family: &str, key: &[u8]) -> bool {
    key.strip_prefix(family.as_bytes())
        .is_some_and(|child| !child.contains(&b'/'))
}

impl Slot {
    /// The lease the key is or will be attached to.
    pub(crate) fn lease(&self) -> Option<LeaseRef> {
        match self {
            Slot::Free | Slot::Retained => None,
            Slot::Wanting { lease }
            | Slot::Putting { lease }
            | Slot::Doubt { lease }
            | Slot::Queued(Queued { lease, .. })
            | Slot::Held { lease, .. }
            | Slot::Deleting { lease, .. } => Some(*lease),
        }
    }

    /// The lease and the run of a key that is held, and not lost.
    pub(crate) fn run(&self) -> Option<(LeaseRef, &Run)> {
        match self {
            Slot::Held {
                lease,
                lost: false,
                run,
                ..
            } => Some((*lease, run)),
            _ => None,
        }
    }

    /// The calls that have the key.
    pub(crate) fn holders(&self) -> impl Iterator<Item = CallId> {
        let (call, beside) = match self {
            Slot::Held { call, beside, .. } => (Some(*call), &**beside),
            _ => (None, &[][..]),
        };
        call.into_iter().chain(beside.iter().copied())
    }

    /// Nobody can rely on the key any more.
    pub(crate) fn lose(&mut self) {
        if let Slot::Held { lost, .. } = self {
            *lost = true;
        }
    }

    /// Whether this call has the key.
    pub(crate) fn is_held_by(&self, call: CallId) -> bool {
        self.holders().any(|of| of == call)
    }

    /// The create revision of the key, where it is known to exist.
    pub(crate) fn created(&self) -> Option<Revision> {
        match self {
            Slot::Queued(Queued { created, .. })
            | Slot::Held { created, .. }
            | Slot::Deleting { created, .. } => Some(*created),
            _ => None,
        }
    }
}
