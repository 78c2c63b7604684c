//! Transport: connections to etcd, failover among its endpoints, watches and lease renewals.

pub(crate) mod client;
mod cluster;
mod convert;
mod endpoint;
mod errors;
mod expiry;
mod gather;
mod keyring;
pub(crate) mod page;
pub(crate) mod reach;
mod renewal;
mod ring;
mod scheme;
mod scout;
mod target;
pub(crate) mod watch;
