//! Transport: connections to etcd, failover among its endpoints, watches and lease renewals.

pub(crate) mod client;
mod convert;
mod endpoint;
mod errors;
mod failover;
mod gather;
mod renewals;
mod target;
pub(crate) mod watch;
