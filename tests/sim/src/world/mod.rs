//! World of the simulator: processes, one etcd, a clock, a network and their faults, with the invariants to check.

pub(crate) mod bench;
pub(crate) mod clients;
pub(crate) mod convert;
mod crowds;
pub(crate) mod cycles;
pub(crate) mod drift;
pub mod etcd;
pub(crate) mod faults;
pub(crate) mod invariants;
pub(crate) mod nemesis;
pub(crate) mod network;
pub(crate) mod random;
mod refusals;
pub(crate) mod schedules;
pub(crate) mod tally;
pub(crate) mod trace;
pub mod transport;
pub(crate) mod view;
pub(crate) mod violation;

/// A call. The simulator numbers them.
pub(crate) type CallId = u64;

/// A revision of the store.
pub(crate) type Revision = i64;

/// Converts a revision for the core.
pub(crate) fn revision(number: Revision) -> etcd_locked_core::Revision {
    etcd_locked_core::Revision::new(number).expect("no revision is 0")
}
