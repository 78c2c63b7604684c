//! The simulator: production cores against an etcd, a network and a nemesis that one seed decides.
//!
//! `cargo xtask sim` builds and runs it; [`command`] is all of that. The rule tests of the core use its [`etcd`] and its [`transport`] alone.

mod commands;
mod report;
#[cfg(test)]
mod scenarios;
mod search;
mod series;
mod world;

pub use commands::command;
pub use world::{etcd, transport};
