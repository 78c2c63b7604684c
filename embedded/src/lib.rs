//! Embedded etcd: etcd v3 inside the process, for tests, simulations, and a first try without a server.
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
//! [`Etcd::link`] is a network path to it. Tests can cut it, slow it down, and make it drop requests or responses.
//! [`Etcd::serve`] serves it on TCP, as does the binary of this package: `etcd-locked-embedded --listen 127.0.0.1:2379`.
//! [`store`] implements keys, leases and revisions as a value, without clock, task, socket or lock.
//!
//! # Scope
//!
//! The embedded etcd is one member, which is always the leader. Its data ends with the process. Responses, revisions, gRPC
//! codes and messages are those of etcd 3.7. It serves KV, Lease, Watch, and the calls of Maintenance and Cluster that clients
//! and `etcdctl` make. It does not serve users and roles, locks, elections or `RangeStream`.
//!
//! The store keeps the current keys and the last 10,000 revisions, as etcd does with `--auto-compaction-mode=revision
//! --auto-compaction-retention=10000`. A watch or read of an earlier revision gets etcd's "compacted" error. The store does
//! not have a quota: memory grows with the data.

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
