//! Rule tests: cores around one etcd, where the test handles every request.
//!
//! A [`rig`] has one core, a [`town`] several. Each test checks one promise. Imports that all files need are here.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use etcd_locked_core::{
    Acquire, CallId as Id, Contender, Core, Event, Failure, Grant, Input, Key, Kv, LossCause, Mode,
    Moment, Op, Output, OwnedKey, Refusal, Refused, Release, Request, RequestId, Response,
    Revision, Search, Session, Settings, Txn, TxnAnswer, Wait, WatchId, listed_by, taken,
};
use etcd_locked_sim::etcd::{Etcd, Snapshot, Space, refused, settings, unavailable, unknown};
use etcd_locked_sim::transport::Transport;

use rig::{
    Rig, any, ask, deletes, keys_deleted, keys_put, lists, operations, puts, reads, record, renews,
};
use town::{Town, is_abort, is_search};

mod admission;
mod batches;
mod contenders;
mod deadlocks;
mod deadlocks_of_readers;
mod groups;
mod handovers;
mod lists;
mod permits;
mod reach;
mod readers;
mod records;
mod rig;
mod sessions;
mod shutdown;
mod silence;
mod town;
mod values;
mod waiters;

type CallId = u64;

const A: &str = "locks/a";
const B: &str = "locks/b";
const C: &str = "locks/c";

/// The TTL of the rig's calls in seconds, unless a test sets another.
const TTL: i64 = 9;
const WHOLE: Duration = Duration::from_secs(TTL as u64);

const SECOND: Duration = Duration::from_secs(1);

/// Longer than any pause before a retry, and shorter than the time until a renewal.
const SOON: Duration = Duration::from_millis(400);

/// How often etcd responds while time passes.
const STEP: Duration = millis(50);

const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn permits(count: u16) -> Mode {
    Mode::Permits(count.try_into().expect("not zero"))
}
