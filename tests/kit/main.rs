//! The etcd in the process and the test kit for users, `etcd_locked::testing`, keep their word: no server, and no waiting.

mod clock;
mod embedded;
mod faults;
mod kept;
mod limits;
mod measured;
mod names;
mod operator;
mod order;
mod service;
mod waiters;
mod wakers;
