//! Some processes, one etcd, a clock and a network between them; what goes wrong, and what must hold all the same.

pub(crate) mod bench;
pub(crate) mod clients;
pub(crate) mod invariants;
pub(crate) mod nemesis;
pub(crate) mod network;
pub(crate) mod random;
pub(crate) mod schedules;
pub(crate) mod store;
pub(crate) mod trace;
