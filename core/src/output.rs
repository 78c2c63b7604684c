//! Output: what a core wants done, and what it reports to its calls.

use std::sync::Arc;
use std::time::Duration;

use crate::ids::{CallId, Key, RequestId, Revision, WatchId};
use crate::loss::LossCause;
use crate::moment::Deadline;
use crate::request::{Cause, Failure, Kv, Refusal, Request};
use crate::seat::Mode;

/// What a core wants done.
#[derive(Debug)]
pub enum Output {
    /// Exchange this with etcd and bring the answer.
    Send {
        /// Its id.
        id: RequestId,
        /// The request.
        request: Request,
    },
    /// Watch all keys that begin with the prefix: their deletions, and if asked also their puts.
    Watch {
        /// Its id.
        id: WatchId,
        /// What the keys begin with.
        prefix: Key,
        /// The first revision of interest.
        from: Revision,
        /// Report puts too.
        puts: bool,
    },
    /// Stop that watch.
    Unwatch(WatchId),
    /// The call has its locks.
    Granted(Grant),
    /// The call does not get its locks.
    Refused {
        /// The call.
        call: CallId,
        /// Why not.
        why: Refused,
    },
    /// The call has lost its locks: its body must not be polled again.
    Lost {
        /// The call.
        call: CallId,
        /// How.
        cause: LossCause,
    },
    /// The keys of a released call are gone, or are not known to be.
    Released {
        /// The call.
        call: CallId,
        /// Whether they are gone.
        result: Result<(), Refused>,
    },
    /// The session that [`Input::Warm`](crate::Input::Warm) asked for is open; with the id given there.
    Ready(CallId),
    /// This name has very many keys below it, of other names: it is read at most once a second. Reported once.
    Crowded(Key),
    /// A search for a cycle has left keys out for the first time: it may have missed one (rule P38).
    Bounded,
    /// The shutdown is complete.
    Finished,
}

/// The locks of a call were taken.
#[derive(Debug, Clone)]
pub struct Grant {
    /// The call.
    pub call: CallId,
    /// How it shares them.
    pub mode: Mode,
    /// One for each name, in the order of the call.
    pub owned: Vec<OwnedKey>,
    /// Until when they may be relied on.
    pub deadline: Arc<Deadline>,
}

/// A key that a call owns.
#[derive(Debug, Clone)]
pub struct OwnedKey {
    /// The key.
    pub key: Key,
    /// Its create revision.
    pub created: Revision,
    /// The token's revision (rule P21).
    pub revision: Revision,
    /// How often the key was handed over in this process since (rule P22).
    pub handover: u16,
}

/// Who has a name, as far as this process knows.
#[derive(Debug, Clone)]
pub struct Owner {
    /// The record of the call that has it.
    pub record: Arc<[u8]>,
    /// The key, if it hangs on no lease: it never expires.
    pub unleased: Option<Key>,
}

impl Owner {
    /// The owner whose key etcd has shown.
    pub fn of(kv: Kv) -> Self {
        let unleased = kv.lease == Some(0);
        Self {
            unleased: unleased.then(|| String::from_utf8_lossy(&kv.key).into()),
            record: kv.value.into(),
        }
    }
}

/// Why a call is not served. A `name` is counted from 0, in the order of the call.
#[derive(Debug, Clone)]
pub enum Refused {
    /// One try, and the name was taken.
    Held {
        /// The name.
        name: usize,
        /// Who has it, if known.
        owner: Option<Owner>,
    },
    /// The wait was over.
    Timeout {
        /// The name.
        name: usize,
        /// Who has it, if known.
        owner: Option<Owner>,
        /// How long the call waited.
        waited: Duration,
    },
    /// The call's task is part of a deadlock (rule P38).
    Deadlock {
        /// The name.
        name: usize,
        /// Each blocker of the cycle in order; the last belongs to the call's own task.
        cycle: Arc<[Blocker]>,
    },
    /// As many calls wait as may at a time.
    Overloaded,
    /// No new locks.
    ShuttingDown,
    /// etcd's user may not use the name's key.
    PermissionDenied(Cause),
    /// etcd's user may not use the session keys (rule P10b).
    SessionDenied(Cause),
    /// etcd could not be reached, or refused.
    Backend(Cause),
}

/// One blocker of a deadlock's cycle: the key that stands in the way, and its record.
#[derive(Debug, Clone)]
pub struct Blocker {
    /// The key, or the name for a blocker in this process.
    pub key: Key,
    /// Its record; empty where nobody wrote one.
    pub record: Arc<[u8]>,
}

impl Refused {
    /// Which of the call's names it is about, counted from 0; the first stands for all.
    pub fn name(&self) -> usize {
        match self {
            Self::Held { name, .. } | Self::Timeout { name, .. } | Self::Deadlock { name, .. } => {
                *name
            }
            _ => 0,
        }
    }

    /// What a call learns of a failure.
    pub fn by(failure: Failure) -> Self {
        match failure {
            Failure::Refused(Refusal::PermissionDenied, cause) => Self::PermissionDenied(cause),
            other => Self::Backend(other.cause()),
        }
    }
}
