//! Rule by rule: one core, one etcd, and every request through the test's hands.

use std::time::Duration;

mod deadlocks;
mod ending;
mod groups;
mod handovers;
mod keys;
mod leases;
mod permits;
mod readers;
mod records;
mod retained;
mod rig;
mod shares;
mod silence;
mod town;
mod turns;
mod waiters;

/// Longer than any pause before something is sent again, shorter than a renewal takes to be due.
const SOON: Duration = Duration::from_millis(400);
