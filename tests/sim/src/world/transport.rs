//! Transport of one process, reduced to its decisions: it reports whether etcd responds, and probes it.

use std::collections::BTreeMap;
use std::time::Duration;

use etcd_locked_core::{
    Failure, Input, Key, Moment, Op, Reach, Request, RequestId, Response, Sent, Txn,
};

/// The id before that of the first probe.
const PROBES: u64 = 1 << 63;

/// What a process knows of etcd, and its requests under way.
#[derive(Debug)]
pub struct Transport {
    reach: Reach,
    sent: BTreeMap<RequestId, Sent>,
    probes: u64,
}

impl Transport {
    /// Makes one for a core with this connect time-out.
    #[must_use]
    pub fn new(connect_timeout: Duration) -> Self {
        Self { reach: Reach::new(connect_timeout), sent: BTreeMap::new(), probes: PROBES }
    }

    /// Returns true if a request is a probe, and not the core's.
    #[must_use]
    pub fn is_probe(id: RequestId) -> bool {
        id > RequestId(PROBES)
    }

    /// Notes that a request is sent.
    pub fn send(&mut self, now: Moment, id: RequestId, request: &Request) {
        if !Self::is_probe(id) {
            self.sent.insert(id, self.reach.begin(now, request));
        }
    }

    /// Notes the result of a request, and marks a stale response.
    pub fn end(&mut self, now: Moment, id: RequestId, result: &mut Result<Response, Failure>) {
        if let Some(sent) = self.sent.remove(&id) {
            self.reach.end(now, sent, result);
        }
    }

    /// Returns the next input that the core has yet to receive.
    pub fn news(&mut self) -> Option<Input> {
        self.reach.news.pop_front()
    }

    /// Returns when the next probe is due, if one is.
    #[must_use]
    pub fn due(&self) -> Option<Moment> {
        self.reach.due()
    }

    /// Notes whether calls wait.
    pub fn wait(&mut self, now: Moment, waits: bool) {
        self.reach.wait(now, waits);
    }

    /// Returns the probe that is due, if one is.
    pub fn probe(&mut self, now: Moment) -> Option<(RequestId, Request)> {
        let probe = Op::Get { key: Key::from("locks/"), values: false };
        let probe = Request::Txn(Txn { then: vec![probe], ..Txn::default() });
        let sent = self.reach.probe(now, &probe)?;
        self.probes += 1;
        let id = RequestId(self.probes);
        self.sent.insert(id, sent);
        Some((id, probe))
    }
}
