//! Output of the core: requests and watches for etcd, and reports to callers.

use std::sync::Arc;
use std::time::Duration;

use crate::ids::{CallId, Key, RequestId, Revision, WatchId};
use crate::loss::LossCause;
use crate::moment::Deadline;
use crate::request::{Cause, Failure, Kv, Refusal, Request};
use crate::seat::Mode;

/// A request, a change of the watches, or a report.
#[derive(Debug)]
pub enum Output {
    /// Send this request to etcd, and return its result as [`Input::Answer`](crate::Input::Answer).
    Send { id: RequestId, request: Request },
    /// Watch the keys that begin with the prefix, from this revision onwards: their deletions, and with `puts` also their puts.
    Watch { id: WatchId, prefix: Key, from: Revision, puts: bool },
    /// Stop a watch.
    Unwatch(WatchId),
    /// A call gets its locks.
    Granted(Grant),
    /// A call does not get its locks.
    Refused { call: CallId, why: Refused },
    /// A call has lost its locks, so its body must not be polled again. Reported again if a shutdown stops a body that went on.
    Lost { call: CallId, cause: LossCause },
    /// The keys of a released call are gone; with an error, it is not known whether they are.
    Released { call: CallId, result: Result<(), Refused> },
    /// The session of an [`Input::Warm`](crate::Input::Warm) is open.
    Ready(CallId),
    /// This name has so many keys of other names below it that it is read at most once a second. Reported once.
    Crowded(Key),
    /// A search for a cycle has reached a limit, so it may have missed one (rule P38). Reported once.
    Bounded,
    /// The shutdown is complete.
    Finished,
}

/// The locks that a call got.
#[derive(Debug, Clone)]
pub struct Grant {
    pub call: CallId,
    pub mode: Mode,
    /// One for each name, in the order of the call's names.
    pub owned: Vec<OwnedKey>,
    /// How long the locks may be relied on.
    pub deadline: Arc<Deadline>,
}

#[derive(Debug, Clone)]
pub struct OwnedKey {
    pub key: Key,
    pub created: Revision,
    /// The revision part of the token (rule P21).
    pub revision: Revision,
    /// The number of hand-overs in this process since then (rule P22).
    pub handover: u16,
}

/// The owner of a name, as far as this process knows.
#[derive(Debug, Clone)]
pub struct Owner {
    pub record: Arc<[u8]>,
    /// The owner's key, if it has no lease and so never expires.
    pub unleased: Option<Key>,
}

impl Owner {
    /// Returns the owner of a key that was read.
    pub fn of(kv: Kv) -> Self {
        let unleased = kv.lease == Some(0);
        let unleased = unleased.then(|| String::from_utf8_lossy(&kv.key).into());
        Self { record: kv.value.into(), unleased }
    }
}

/// Why a call does not get its locks. `name` is an index into the call's names; `owner` is `None` if it is unknown.
#[derive(Debug, Clone)]
pub enum Refused {
    /// A single try found the name taken.
    Held { name: usize, owner: Option<Owner> },
    /// The wait timed out.
    Timeout { name: usize, owner: Option<Owner>, waited: Duration },
    /// The call's task is part of a deadlock (rule P38). The blockers are in the order of the cycle; the last is the task's own.
    Deadlock { name: usize, cycle: Arc<[Blocker]> },
    /// The maximum number of calls wait already.
    Overloaded,
    /// A shutdown has begun.
    ShuttingDown,
    /// etcd denies its user the key of the name.
    PermissionDenied(Cause),
    /// etcd denies its user the session keys (rule P10b).
    SessionDenied(Cause),
    /// etcd could not be reached, or refused the request.
    Backend(Cause),
}

/// One blocker of a deadlock's cycle.
#[derive(Debug, Clone)]
pub struct Blocker {
    /// The blocking key; for a blocker in this process, its lock name.
    pub key: Key,
    /// Empty if the record is unknown.
    pub record: Arc<[u8]>,
}

impl Refused {
    /// Returns the index of the name that it is about; 0 if it is about all of them.
    pub fn name(&self) -> usize {
        match self {
            Self::Held { name, .. } | Self::Timeout { name, .. } | Self::Deadlock { name, .. } => {
                *name
            }
            _ => 0,
        }
    }

    /// Returns the refusal that a failed request causes.
    pub fn by(failure: Failure) -> Self {
        match failure {
            Failure::Refused(Refusal::PermissionDenied, cause) => Self::PermissionDenied(cause),
            other => Self::Backend(other.cause()),
        }
    }
}
