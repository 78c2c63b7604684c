//! Scenarios: what the random schedules are too small, too short or too fair to show. One promise a test.
//!
//! They drive cores by inputs, outputs and requests alone, on the [`stage`]; work is counted in steps, never in time.

mod costs;
mod faults;
mod stage;
