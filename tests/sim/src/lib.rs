//! Simulator: runs production cores against a model of etcd and a network, with faults and their timing decided by a seed.
//!
//! `cargo xtask sim` builds and runs [`command`]. The rule tests of the core use only its [`etcd`] and its [`transport`].

mod commands;
mod report;
#[cfg(test)]
mod scenarios;
mod search;
mod series;
mod world;

pub use commands::command;
pub use world::{etcd, transport};
