//! What a core wants done, and what it tells its calls.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use crate::core::deadline::Deadline;
use crate::core::request::{self, Cause, Failure, Key, Request, Revision};
use crate::core::{CallId, RequestId, WatchId};
use crate::error::LossCause;

/// What a core wants done.
#[derive(Debug)]
pub(crate) enum Output {
    /// Exchange this with etcd and bring the answer.
    Send { id: RequestId, request: Request },
    /// Watch all keys below the prefix from this revision on: their deletions, and if asked also what is put.
    Watch {
        id: WatchId,
        prefix: Key,
        from: Revision,
        puts: bool,
    },
    /// Stop that watch.
    Unwatch { id: WatchId },
    /// The call has its lock.
    Granted(Grant),
    /// The call does not get its lock.
    Refused { call: CallId, why: Refused },
    /// The call has lost its lock: its body must not be polled again.
    Lost { call: CallId, cause: LossCause },
    /// The key of a call is gone; or it is not known to be.
    Released {
        call: CallId,
        result: Result<(), Refused>,
    },
    /// The lease a [`Input::Warm`](super::Input::Warm) asked for is open.
    Ready { call: CallId },
    /// The shutdown is complete.
    Finished,
}

/// The locks of a call were taken.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) call: CallId,
    /// In the order of the call's names.
    pub(crate) owned: Vec<Owned>,
    pub(crate) deadline: Arc<Deadline>,
}

/// A lock that was taken.
#[derive(Debug, Clone)]
pub(crate) struct Owned {
    pub(crate) key: Key,
    pub(crate) created: Revision,
    /// The token's revision (rule P21).
    pub(crate) revision: Revision,
    /// How often the key was handed on in this process since (rule P22).
    pub(crate) handover: u16,
}

/// Why a call is not served.
#[derive(Debug, Clone)]
pub(crate) enum Refused {
    /// One try, and the name was taken.
    Held {
        /// Which of the call's names, counted from 0.
        name: usize,
        holder: Option<Arc<[u8]>>,
    },
    /// The wait was over.
    Timeout {
        /// Which of the call's names, counted from 0.
        name: usize,
        holder: Option<Arc<[u8]>>,
        waited: Duration,
    },
    /// It wants another number of permits than others, who came first (rule P37).
    Mismatch {
        /// Which of the call's names, counted from 0.
        name: usize,
        /// Their number.
        theirs: NonZeroU16,
        holder: Option<Arc<[u8]>>,
    },
    /// Its task holds what others wait for, and those hold what it waits for (rule P38).
    Deadlock {
        /// Which of the call's names, counted from 0.
        name: usize,
        /// Who keeps the call waiting, and who keeps that one, and so on: the last is its own task.
        cycle: Arc<[Blocker]>,
    },
    /// As many calls as may wait do so already.
    Overloaded,
    /// The lock was lost before its release was confirmed.
    Lost { cause: LossCause },
    /// No new locks.
    ShuttingDown,
    /// etcd's user may not use the name's key.
    PermissionDenied(Cause),
    /// etcd's user may not use the session keys (rule P10b).
    SessionDenied(Cause),
    /// etcd could not be reached, or refused.
    Backend(Cause),
}

/// One of a circle of calls that wait for each other: what it has, or is before others for, and its record.
#[derive(Debug, Clone)]
pub(crate) struct Blocker {
    pub(crate) key: Key,
    pub(crate) record: Arc<[u8]>,
}

impl Refused {
    /// Which of the call's names it is about, counted from 0; the first stands for all.
    pub(crate) fn name(&self) -> usize {
        match self {
            Self::Held { name, .. }
            | Self::Timeout { name, .. }
            | Self::Mismatch { name, .. }
            | Self::Deadlock { name, .. } => *name,
            _ => 0,
        }
    }

    /// What a call is told about a failure.
    pub(super) fn by(failure: Failure) -> Self {
        match failure {
            Failure::Refused {
                kind: request::Refusal::PermissionDenied,
                cause,
            } => Self::PermissionDenied(cause),
            Failure::Refused { cause, .. }
            | Failure::Unavailable(cause)
            | Failure::Unknown(cause) => Self::Backend(cause),
        }
    }
}
