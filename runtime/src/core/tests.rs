//! The core under test: against a small etcd, rule by rule and under random schedules.

use std::time::Duration;

mod bench;
mod clients;
mod ending;
mod invariants;
mod keys;
mod leases;
mod nemesis;
mod network;
mod random;
mod rig;
mod schedules;
mod silence;
mod store;
mod trace;
mod turns;

/// Longer than any pause before something is sent again, shorter than a renewal takes to be due.
const SOON: Duration = Duration::from_millis(400);
