//! The core of etcd-locked: every decision about every lock of a process, as values in and values out.
//!
//! It awaits nothing, reads no clock and opens no socket. The contract is one loop: [`Core::handle`] one [`Input`], drain
//! [`Core::poll`] until it returns `None`, and call again at [`Core::next_timeout`] at the latest. The engine of `etcd-locked`
//! runs it against etcd; the simulator runs it against anything.
//!
//! Rule numbers (P1 …) are those of `PROTOCOL.md`.

// What other crates may use is the table of exports below. What its name explains has no comment.
#![allow(unreachable_pub, missing_docs)]

mod call;
mod conductor;
mod contender;
mod deadlock;
mod ids;
mod input;
mod loss;
mod moment;
mod name;
mod outbox;
mod output;
mod ownership;
mod pool;
mod reach;
mod request;
mod seat;
mod session;
mod shutdown;
mod steps;
mod timers;
mod transactions;
mod view;

pub use conductor::Core;
pub use deadlock::{Cycle, Search};
pub use ids::{
    CallId, Key, LeaseId, RequestId, Revision, WatchId, lease_of, listed_by, session_root,
};
pub use input::{Acquire, Input, Release, Settings, Wait};
pub use loss::LossCause;
pub use moment::{Deadline, Moment};
pub use output::{Blocker, Grant, Output, OwnedKey, Owner, Refused};
pub use reach::{Reach, Sent};
pub use request::{
    Cause, Compare, Event, Failure, Kv, Op, Refusal, Request, Response, Txn, TxnAnswer,
};
pub use seat::{Mode, Seat, admits};
#[cfg(feature = "simulation")]
pub use {
    contender::{Contender, State},
    session::Session,
    steps::taken,
};

/// Names one call may have: they are put in one transaction, which leaves room for others (rules P6, P13).
pub const NAMES: usize = 32;
