//! etcd v3 inside the process: for tests, for simulations, and for a first try without a server.
//!
//! [`store`] is what etcd does with keys, leases and revisions, as a value: no clock, no task, no socket, no lock.

pub mod store;
