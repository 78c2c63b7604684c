//! One call: the names it wants, all of them or none, and how far it has come (rule P13).
//!
//! A call with several names is a *group*: it stands in the queues of all its names from the same step on, its keys are put
//! in one transaction, once it is at the head of all of them and all its keys are free, and it is granted when all of them
//! are ready. One transaction is one create revision, so a group has one rank, in etcd as in the queues: no two of them can
//! wait for each other. A call with one name is a group of one, but for its key, which the next such call may inherit.

use std::sync::Arc;

use crate::clock::Moment;
use crate::core::CallId;
use crate::core::mode::Mode;
use crate::core::place;
use crate::core::request::Key;

/// A call, from when it comes until its keys are gone.
#[derive(Debug)]
pub(crate) struct Call {
    /// As written, each once; by the places its keys have, or are to have ([`place`](super::place)). Which permit that will be
    /// is not known before its turn: until then the name stands for it.
    pub(crate) names: Arc<[Key]>,
    pub(crate) mode: Mode,
    pub(crate) ttl_secs: i64,
    pub(crate) record: Arc<[u8]>,
    pub(crate) since: Moment,
    /// When it gives up, if ever: queueing, and after its body lingering, or waiting to hear that its keys are gone.
    pub(crate) until: Option<Moment>,
    /// One try, no queueing (rule P11).
    pub(crate) once: bool,
    /// The one try met deeper keys: it goes by an ordinary put, withdrawn unless granted at once.
    pub(crate) put_once: bool,
    /// How often it went to the end of its queues, to let others by that wait for it in a circle (rule P38).
    pub(crate) requeued: u32,
    pub(crate) stage: Stage,
    /// Its names are to stay locked until then, whenever its body ends (rule P39).
    pub(crate) keep: Option<Moment>,
    /// Its body is gone, and what it had stays a moment for a call that may come.
    pub(crate) lingers: bool,
    /// It has lost its locks, and was told so.
    pub(crate) lost: bool,
    /// `None` for most: their task makes no other call meanwhile.
    pub(crate) nest: Option<Box<Nest>>,
}

/// Where a call stands among those of its task.
#[derive(Debug, Default)]
pub(crate) struct Nest {
    /// The calls whose locks its task holds. Where there are any it is served during a shutdown (rule P26).
    pub(crate) outer: Vec<CallId>,
    /// Calls its task has begun while holding its locks; some may have ended.
    pub(crate) inner: Vec<CallId>,
}

/// How far a call has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It stands in the queues of its names.
    Waiting,
    /// All its keys are held, and its body runs.
    Holding,
    /// Its body is gone; somebody waits to hear that so many keys are gone too.
    Releasing { left: usize },
}

impl Call {
    /// Whether its keys are for itself alone: several, which stand or fall together.
    pub(crate) fn is_group(&self) -> bool {
        self.names.len() > 1
    }

    /// The calls whose locks its task held when it was made.
    pub(crate) fn outer(&self) -> &[CallId] {
        self.nest.as_ref().map_or(&[], |nest| &nest.outer)
    }

    /// The calls its task has made since.
    pub(crate) fn inner(&self) -> &[CallId] {
        self.nest.as_ref().map_or(&[], |nest| &nest.inner)
    }

    /// Which of its names this is, counted from 0.
    pub(crate) fn position(&self, place: &Key) -> usize {
        let name = place::name_of(place);
        let mut names = self.names.iter().map(|of| place::name_of(of));
        names.position(|of| of == name).unwrap_or(0)
    }
}

/// What is put in one transaction, and never in two: the names of a call.
#[derive(Debug, Clone)]
pub(crate) struct Bid {
    pub(crate) names: Arc<[Key]>,
    /// The group it is for; a bid for one name is for whoever is at the head of its queue.
    pub(crate) group: Option<CallId>,
}
