//! Core of etcd-locked: makes every decision about the locks of one process, with values as input and output.
//!
//! It awaits nothing, reads no clock and opens no socket. Its caller runs one loop: pass an [`Input`] to [`Core::handle`], call
//! [`Core::poll`] until it returns `None`, and call `handle` again by [`Core::next_timeout`]. The engine of `etcd-locked` runs
//! this loop against etcd, the simulator against a model of etcd.
//!
//! `PROTOCOL.md` defines the rules (P1 …) that comments cite.

// Other crates may use the exports listed below. An item that its name explains has no comment.
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

/// The most names of one call. One transaction puts them all, and has room left for other calls (rules P6, P13).
pub const NAMES: usize = 32;
