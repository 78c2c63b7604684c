//! Wait: how long a call queues for its lock.

pub use etcd_locked_core::Wait;
