//! Input of the core: commands of callers, events from etcd, and the core's settings.

use std::sync::Arc;
use std::time::Duration;

use crate::ids::{CallId, Key, RequestId, WatchId};
use crate::moment::Moment;
use crate::request::{Cause, Event, Failure, Response};
use crate::seat::Mode;

/// The settings of a core.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The prefix of all keys; ends in `/`.
    pub prefix: Arc<str>,
    /// The longest time a call waits while etcd is lost.
    pub connect_timeout: Duration,
    /// The error of a call that etcd has not served in time, if no exchange has failed.
    pub silence: Cause,
    /// Returns the record for a call that has held its lock for a second. The duration is how long the call had waited.
    pub describe: fn(&[u8], Duration) -> Arc<[u8]>,
    /// The most keys under one session, in any state; `None`: no limit. With an etcd user, each key makes puts slower (rule P27).
    pub keys_per_session: Option<usize>,
    /// The most predecessors for which a contender watches the family. Beyond, it watches only the one just ahead (rule P15).
    pub near: usize,
    /// The most calls that may wait at a time; `None`: no limit. Single tries do not count, and nested calls may always wait.
    pub max_waiters: Option<usize>,
    /// True if a command sends nothing itself. The next tick does, and [`next_timeout`](crate::Core::next_timeout) is then due at
    /// once. Meant for a sender thread that must wake up first: what arrives meanwhile joins the transaction (rule P7).
    pub defers: bool,
    /// The seed of the jitter, so that processes do not act in step.
    pub seed: u64,
}

/// A command or an event.
#[derive(Debug)]
pub enum Input {
    /// A call wants its names.
    Acquire(Acquire),
    /// The caller of a waiting call is gone.
    Cancel(CallId),
    /// The body of a call has been dropped. If `fenced`, its keys are not handed over (rule P22).
    Release { call: CallId, how: Release, fenced: bool },
    /// Opens a session with this TTL, which proves that etcd can be reached and that this process may write there.
    Warm { call: CallId, ttl_secs: i64 },
    /// A request of the core ended, with a response or without.
    Answer { request: RequestId, result: Result<Response, Failure> },
    /// etcd has been silent since this moment. Only renewals are sent until [`Back`](Self::Back). A call is refused once both its
    /// wait and the silence have lasted for the connect time-out. May come again with another cause.
    Lost { since: Moment, cause: Option<Cause> },
    /// etcd responds again, or there is a new connection. etcd may have been wiped, so leases with bodies are renewed first.
    Back,
    /// etcd has lost its history, or is another cluster than before. All locks granted until now are lost (rule P35).
    Wiped,
    /// A watch reported a change. `None`: its first revision is compacted, so the name is read and watched again (rule P16).
    Watch { watch: WatchId, event: Option<Event> },
    /// An operator asks a holding call to give up its locks (rule P40). The call keeps them until it releases them.
    Kick(CallId),
    /// Refuse new locks. Bodies may run until then.
    Shutdown { until: Moment },
    /// Check all held names now, not only after a second of holding (rule P18). For the test kit.
    Inspect,
    /// Time has passed.
    Tick,
}

/// When the keys of a released call are deleted, unless another call takes them over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// At once, and the caller waits for the confirmation.
    Confirmed,
    /// At once, and no caller waits.
    Unconfirmed,
    /// After a moment, so that the next call of this process takes them over; at once if other processes want them.
    Lingering,
    /// Not with their session: they are now on a separate lease (rule P39). Occurs only during a shutdown.
    Moved,
}

/// How long a call waits for its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// A single try. It waits for no holder, and for etcd at most for the connect time-out.
    Once,
    /// At most for this time.
    For(Duration),
    /// Until it is granted.
    Forever,
}

/// A call for its names: it gets all of them or none (rule P13).
#[derive(Debug)]
pub struct Acquire {
    pub call: CallId,
    /// At most [`NAMES`](crate::NAMES), without duplicates and without a trailing `/`.
    pub names: Vec<Key>,
    pub ttl_secs: i64,
    /// The mode for all its names.
    pub mode: Mode,
    pub wait: Wait,
    pub record: Arc<[u8]>,
    /// The calls whose locks the calling task holds. If there are any, the call is nested.
    pub holds: Vec<CallId>,
}

impl Acquire {
    /// Makes a call without names. It waits until a session with its TTL is open.
    pub(crate) fn of_session(call: CallId, ttl_secs: i64) -> Self {
        let (mode, wait, record) = (Mode::Exclusive, Wait::Forever, Arc::default());
        Self { call, names: Vec::new(), ttl_secs, mode, wait, record, holds: Vec::new() }
    }
}
