//! What happens to a core, and what it is told once.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::core::mode::Mode;
use crate::core::request::{Failure, Key, Response, WatchNews};
use crate::core::{CallId, RequestId, WatchId};
use crate::site::Wait;

/// What a core is told once.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// What all keys begin with; ends in `/`.
    pub(crate) prefix: Key,
    /// How long a call waits for etcd to be reached at all.
    pub(crate) connect_timeout: Duration,
    /// Bodies under one lease, before the next gets some (rule P27).
    pub(crate) bodies_per_lease: usize,
    /// With more predecessors than this only the last of them is watched, as each who watches all is told of all: that is quick
    /// near the head, and dear far back in the queue (rule P15). With half as many all are watched again.
    pub(crate) near: usize,
    /// Calls that may wait at a time; `None`: any number.
    pub(crate) max_waiters: Option<usize>,
    /// Seeds the jitter, so that processes do not read in step.
    pub(crate) seed: u64,
}

/// What happens to a core.
#[derive(Debug)]
pub(crate) enum Input {
    /// A call wants its names.
    Acquire(Acquire),
    /// A call that waits has gone away.
    Cancel { call: CallId },
    /// The body of a call has been dropped. `fenced`: somebody relies on the keys going with the body: they are not handed
    /// on (rule P22).
    Release {
        call: CallId,
        how: Release,
        fenced: bool,
    },
    /// The body of a call has begun, and its names are to stay locked until then, whenever it ends (rule P39).
    Keep { call: CallId, until: Moment },
    /// Open a lease of this TTL and say so: etcd can be reached, and we may write there.
    Warm { call: CallId, ttl_secs: i64 },
    /// etcd answered, or did not.
    Answer {
        request: RequestId,
        result: Result<Response, Failure>,
    },
    /// A watch told something.
    Watch { watch: WatchId, news: WatchNews },
    /// No new locks; bodies have until `until`.
    Shutdown { until: Moment },
    /// Time has passed.
    Tick,
}

/// When the keys of a call go whose body has gone, unless another call takes them over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Release {
    /// At once; and somebody waits to hear it.
    Confirmed,
    /// At once.
    Unheard,
    /// In a moment: who calls again at once finds them still here.
    Lingering,
}

/// A call that wants names: all of them, or none (rule P13).
#[derive(Debug)]
pub(crate) struct Acquire {
    pub(crate) call: CallId,
    /// Prefix and rendered name, without a trailing `/`: at least one, at most [`NAMES`](super::NAMES), each once.
    pub(crate) names: Vec<Key>,
    pub(crate) ttl_secs: i64,
    /// Of all its names.
    pub(crate) mode: Mode,
    pub(crate) wait: Wait,
    /// The holder record.
    pub(crate) record: Arc<[u8]>,
    /// The calls whose locks the calling task holds; where there are any, the call is nested.
    pub(crate) holds: Vec<CallId>,
}
