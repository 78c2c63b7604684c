//! Embedded etcd: etcd v3 inside the process, for tests, for simulations, and for a first try without a server.
//!
//! [`Etcd`] is one etcd. Clients reach it in memory, without a socket, through all of `etcd_client`:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), etcd_client::Error> {
//! let etcd = etcd_locked_embedded::Etcd::new();
//! let mut client = etcd.client().await;
//! client.put("greeting", "hello", None).await?;
//! assert_eq!(client.get("greeting", None).await?.count(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! [`Etcd::link`] is a network path to it, which can be cut, slowed down and made to drop requests or answers.
//! [`Etcd::serve`] offers it on TCP, as does the binary of this package: `etcd-locked-embedded --listen 127.0.0.1:2379`.
//! [`store`] is etcd's handling of keys, leases and revisions as a value: no clock, no task, no socket, no lock.
//!
//! # What it is, and what not
//!
//! One member that is always the leader; nothing is kept beyond the process. Answers, revisions, gRPC codes and messages are
//! those of etcd 3.7. It serves KV, Lease, Watch, and the calls of Maintenance and Cluster that clients and `etcdctl` make.
//! It has no users and roles, no lock service, no election service and no `RangeStream`.
//!
//! The store keeps the present keys and the last 10,000 revisions, as under etcd's `--auto-compaction-mode=revision
//! --auto-compaction-retention=10000`. A watch or read of an earlier revision gets etcd's "compacted". There is no quota:
//! memory grows with the data.

mod clock;
mod etcd;
mod link;
mod paced;
mod router;
mod serve;
mod service;
mod shared;
pub mod store;
mod watches;

pub use self::clock::{Clock, Monotonic};
pub use self::etcd::Etcd;
pub use self::link::{Fault, Link};
pub use tonic::Code;
