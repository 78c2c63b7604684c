//! Stalls: times in which the machine did not run a thread that was due, or all of etcd, for example for lack of processor time.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use etcd_locked_devkit::{Cluster, Gateway};

use crate::clock::{ms, now};

const PAUSE: Duration = Duration::from_millis(20);
/// Delay from which it counts as a stall, in nanoseconds.
const LATE: u64 = ms(200);
/// Pause between two requests to etcd, in nanoseconds.
pub(crate) const ASK_PAUSE: u64 = ms(100);
const ANSWER_LIMIT: Duration = Duration::from_millis(400);
/// Time from which etcd counts as silent, in nanoseconds: longer than it takes to try another member.
const SILENT: u64 = ms(500);

/// Watches for stalls of this process, in a separate thread; passes on when each began.
pub(crate) fn watch(stalled: impl Fn(u64) + Send + 'static) {
    thread::spawn(move || {
        loop {
            let due = now() + ms(20);
            thread::sleep(PAUSE);
            if now() > due + LATE {
                stalled(due);
            }
        }
    });
}

/// Members that are checked for whether etcd serves; clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked(Arc<Mutex<Vec<Gateway>>>);

impl Asked {
    /// Sets the members to those that the cluster has now.
    pub(crate) fn are(&self, cluster: &Cluster) {
        let members = cluster.members().iter();
        let gateways = members.map(|member| member.gateway().limit(ANSWER_LIMIT));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = gateways.collect();
    }

    /// Sends requests to etcd repeatedly, in a separate thread. Whenever no member has responded soon, passes on the time of the
    /// request.
    pub(crate) fn watch(&self, silent: impl Fn(u64) + Send + 'static) {
        let asked = self.clone();
        thread::spawn(move || {
            let mut first = 0;
            loop {
                thread::sleep(Duration::from_nanos(ASK_PAUSE));
                let members = asked.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let since = now();
                // The member that responded last gets the next request first.
                let ask = |at: &usize| members[at % members.len()].get("locks%s/serves").is_ok();
                first = (first..first + members.len()).find(ask).unwrap_or(first);
                if now() > since + SILENT {
                    silent(since);
                }
            }
        });
    }
}
