//! Scenarios for which random schedules are too small, too short or too fair. Each test checks one promise.
//!
//! They use only inputs, outputs and requests of cores, on the [`stage`]. Work is counted in steps, never in time.

mod costs;
mod faults;
mod stage;
