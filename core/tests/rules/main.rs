//! Rule by rule: cores around one etcd, and every request through the test's hands.
//!
//! On the [`rig`] stands one core, in the [`town`] several. Each promise of a file is one test.

use std::time::Duration;

mod admission;
mod batches;
mod contenders;
mod deadlocks;
mod deadlocks_of_readers;
mod groups;
mod guards;
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
mod stack;
mod town;
mod values;
mod waiters;

/// A call, by its number.
type CallId = u64;

/// Longer than any pause before something is sent again, shorter than a renewal takes to be due.
const SOON: Duration = Duration::from_millis(400);
