//! Scenarios: what the random schedules are too small, too short or too fair to show. One promise a test.
//!
//! They drive cores by inputs, outputs and requests alone, on the [`stage`]; work is counted in steps, never in time.

pub(crate) mod barrier;
mod compaction;
mod idle;
mod nested;
mod outage;
pub(crate) mod restore;
mod retention;
mod shutdown;
mod stage;
mod steps;
mod tries;
mod waits;
