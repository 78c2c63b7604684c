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
    /// Exchange this with etcd, and bring the answer.
    Send { id: RequestId, request: Request },
    /// Watch all keys that begin with the prefix, from this revision on: their deletions, and if asked also their puts.
    Watch { id: WatchId, prefix: Key, from: Revision, puts: bool },
    /// Stop that watch.
    Unwatch(WatchId),
    /// The call has its locks.
    Granted(Grant),
    /// The call does not get its locks.
    Refused { call: CallId, why: Refused },
    /// The call has lost its locks: its body must not be polled again. It comes once, and again if a shutdown ends a body that went on.
    Lost { call: CallId, cause: LossCause },
    /// The keys of a released call are gone, or are not known to be.
    Released { call: CallId, result: Result<(), Refused> },
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
    pub call: CallId,
    pub mode: Mode,
    /// One for each name, in the order of the call.
    pub owned: Vec<OwnedKey>,
    /// Until when they may be relied on.
    pub deadline: Arc<Deadline>,
}

/// A key that a call owns.
#[derive(Debug, Clone)]
pub struct OwnedKey {
    pub key: Key,
    pub created: Revision,
    /// The token's revision (rule P21).
    pub revision: Revision,
    /// How often the key was handed over in this process since (rule P22).
    pub handover: u16,
}

/// Who has a name, as far as this process knows.
#[derive(Debug, Clone)]
pub struct Owner {
    pub record: Arc<[u8]>,
    /// The key, if it hangs on no lease: it never expires.
    pub unleased: Option<Key>,
}

impl Owner {
    /// The one whose key was read.
    pub fn of(kv: Kv) -> Self {
        let unleased = kv.lease == Some(0);
        let unleased = unleased.then(|| String::from_utf8_lossy(&kv.key).into());
        Self { record: kv.value.into(), unleased }
    }
}

/// Why a call is not served. A `name` is counted from 0, in the order of the call; an `owner` is `None` where it is not known.
#[derive(Debug, Clone)]
pub enum Refused {
    /// One try, and the name was taken.
    Held { name: usize, owner: Option<Owner> },
    /// The wait was over.
    Timeout { name: usize, owner: Option<Owner>, waited: Duration },
    /// The call's task is part of a deadlock (rule P38): each blocker of the cycle in order; the last belongs to the task itself.
    Deadlock { name: usize, cycle: Arc<[Blocker]> },
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

/// One blocker of a deadlock's cycle.
#[derive(Debug, Clone)]
pub struct Blocker {
    /// The key that stands in the way, or the name for a blocker in this process.
    pub key: Key,
    /// Empty where nothing was written.
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
