//! Input: commands of callers and events of etcd, and the settings a core is made with.

use std::sync::Arc;
use std::time::Duration;

use crate::ids::{CallId, Key, RequestId, WatchId};
use crate::moment::Moment;
use crate::request::{Cause, Event, Failure, Response};
use crate::seat::Mode;

/// What a core is made with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What all keys begin with; ends in `/`.
    pub prefix: Arc<str>,
    /// How long a call waits for an etcd that is lost.
    pub connect_timeout: Duration,
    /// Why a call is refused that etcd has not served in time, if no exchange has failed.
    pub silence: Cause,
    /// What a call's record says once the call has held its lock for a second, after it had waited for so long.
    pub describe: fn(&[u8], Duration) -> Arc<[u8]>,
    /// Keys under one session, in whatever state; `None`: any number. A user's puts cost more with each of them (rule P27).
    pub keys_per_session: Option<usize>,
    /// With more predecessors than this a contender watches only the last of them, since each brings an event (rule P15).
    pub near: usize,
    /// Calls that may wait at a time; `None`: any number. Single tries do not count, nested calls are let in.
    pub max_waiters: Option<usize>,
    /// What calls bring is sent at the next tick, which [`next_timeout`](crate::Core::next_timeout) then wants at once. For where
    /// requests leave by a thread that has to wake up first: all that comes meanwhile goes with them (rule P7).
    pub defers: bool,
    /// Seeds the jitter, so that processes do not act in step.
    pub seed: u64,
}

/// What happens to a core.
#[derive(Debug)]
pub enum Input {
    /// A call wants its names.
    Acquire(Acquire),
    /// The caller of a waiting call has gone away.
    Cancel(CallId),
    /// The body of a call has been dropped. If `fenced`, its keys are not handed over (rule P22).
    Release { call: CallId, how: Release, fenced: bool },
    /// Open a session of this TTL and report it: etcd can be reached, and this process may write there.
    Warm { call: CallId, ttl_secs: i64 },
    /// etcd answered a request, or did not.
    Answer { request: RequestId, result: Result<Response, Failure> },
    /// etcd has not answered since the first exchange began then: only renewals are sent until [`Back`](Self::Back), and
    /// calls are refused once they and the outage have lasted for the connect time-out. It may come again with another cause.
    Lost { since: Moment, cause: Option<Cause> },
    /// etcd answers again, or over a new connection. It may have been wiped, so leases with bodies are renewed first.
    Back,
    /// etcd has lost its history, or is another cluster than before: all locks that were granted until now are lost (rule P35).
    Wiped,
    /// A watch reported a change. `None`: the revision it was to start from is compacted: read again, watch again (rule P16).
    Watch { watch: WatchId, event: Option<Event> },
    /// An operator asks the holding call to give its locks up (rule P40). They stay its own until it releases them.
    Kick(CallId),
    /// No new locks; bodies may run until then.
    Shutdown { until: Moment },
    /// Check all held names now: the test kit asks for what happens by itself after a second of holding (rule P18).
    Inspect,
    /// Time has passed.
    Tick,
}

/// When the keys of a call go whose body has gone, unless another call takes them over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// At once; and the caller waits for the confirmation.
    Confirmed,
    /// At once; the caller has gone.
    Unconfirmed,
    /// In a moment, so that the next call of this process finds them still held; at once where others want them.
    Lingering,
    /// Not with its session: they are on a lease of their own (rule P39). Comes only during a shutdown.
    Moved,
}

/// How long a call queues for its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// One try, which waits for no holder; and for etcd at most for the connect time-out.
    Once,
    /// At most this long.
    For(Duration),
    /// Until it is served.
    Forever,
}

/// A call that wants names: all of them, or none (rule P13).
#[derive(Debug)]
pub struct Acquire {
    pub call: CallId,
    /// At most [`NAMES`](crate::NAMES), each once, without a trailing `/`.
    pub names: Vec<Key>,
    pub ttl_secs: i64,
    /// How it shares all its names.
    pub mode: Mode,
    pub wait: Wait,
    /// The holder record.
    pub record: Arc<[u8]>,
    /// The calls whose locks the calling task holds; where there are any, the call is nested.
    pub holds: Vec<CallId>,
}

impl Acquire {
    /// A call without names waits until a session of its TTL is open.
    pub(crate) fn of_session(call: CallId, ttl_secs: i64) -> Self {
        let (mode, wait, record) = (Mode::Exclusive, Wait::Forever, Arc::default());
        Self { call, names: Vec::new(), ttl_secs, mode, wait, record, holds: Vec::new() }
    }
}
