//! Distributed locks in etcd for async Rust, as one attribute on an `async fn`.
//!
//! While one call runs, all other calls with the same lock name wait: in other tasks, other processes and on other machines. If the lock
//! is lost, the body stops at its next await point, and the caller gets an error.
//!
//! ```
//! use etcd_locked::{LockError, etcd_locked};
//!
//! # struct Receipt;
//! #[etcd_locked("orders/<id>", wait = "5s")]
//! async fn ship(id: u64) -> Result<Receipt, LockError> {
//!     // No other call ships order `id` now: no other task, no other process, no other machine.
//!     Ok(Receipt)
//! }
//! ```
//!
//! Without `wait`, a call waits up to 10 seconds for its lock, then returns [`LockError::Timeout`]. If a process dies, etcd frees its
//! locks when their lease's TTL is over, 30 seconds by default.
//!
//! # Start and stop
//!
//! Set `ETCD_LOCKED_ENDPOINTS=http://10.0.0.1:2379,http://10.0.0.2:2379`, or call [`init`]. Without [`init`], the first lock reads the
//! environment: [`Config::from_env`] lists the variables and their defaults. Call [`shutdown`] before the process ends: it waits for
//! running bodies, up to its grace period, and releases the locks, so that other processes need not wait for the TTL.
//!
//! ```no_run
//! use std::time::Duration;
//! use etcd_locked::Config;
//! # async fn serve() {}
//!
//! #[tokio::main]
//! async fn main() -> Result<(), etcd_locked::LockError> {
//!     etcd_locked::init(Config::new(["http://10.0.0.1:2379"]).service("shop")).await?;
//!     serve().await;
//!     etcd_locked::shutdown(Duration::from_secs(10)).await;
//!     Ok(())
//! }
//! ```
//!
//! Then read [Getting started](https://github.com/etcd-locked/etcd-locked/blob/main/book/src/getting-started.md), which adds a handler
//! and its test, and [Deploying](https://github.com/etcd-locked/etcd-locked/blob/main/book/src/deploying.md). [`options`] documents every
//! option, [`LockError`] every error.
//!
//! # How do I …
//!
//! | to | write |
//! |---|---|
//! | handle one call at a time for each order | `#[etcd_locked("orders/<id>")]` |
//! | change the wait or the TTL, allow readers, use a semaphore, limit the body, … | [an option of the attribute](options) |
//! | run a job on one replica and skip it on the others | [`wait = "none", on_held = "skip"`](options#on_held), and [`min_hold = "1m"`](options#min_hold) if clocks differ |
//! | lock two accounts at once, without deadlocks | `#[etcd_locked("accounts/<from>", "accounts/<to>")]` |
//! | finish the body even if the client disconnects | [`detach`](options#detach) |
//! | write a helper that cannot be called without the lock | [`proof = order`](options#proof) and `&`[`Locked<Order>`](Locked) |
//! | have the database refuse a holder that was paused | [`token`](Locked::token), [`fence_sql`](Locked::fence_sql), or the feature `sqlx`: `guard.fenced(&db)` |
//! | have the compiler check the name | [`lock_names!`] |
//! | lock every method of a type | [the attribute on its `impl` block](macro@etcd_locked#impl-blocks); `#[etcd_locked(unlocked)]` exempts a method |
//! | return an error type of your own | [`From<LockError>`](LockError), [`map_err`](options#map_err) or [`on_error`](options#on_error) |
//! | turn errors into HTTP or gRPC responses | [the feature `axum`, `actix` or `tonic`](LockError#as-an-answer) |
//! | use another etcd than the process's | [`locks = &self.locks`](options#locks) |
//! | take a lock without the attribute | [`lock(name).await?`](lock()) |
//! | see who holds a lock, or take it away | the command `etcd-locked`, [`Locks::list`], [`status()`] |
//! | test without an etcd server | [`testing`](mod@testing), by the feature `testing` |
//!
//! # What it promises
//!
//! - **One at a time.** Of all calls with the same name, in all processes that use the same etcd, one body is polled at a time.
//! - **In order.** Processes get the lock in the order in which their calls reached etcd, and calls of one process in the order in which
//!   they were made. If etcd's response to a call is lost, that call queues again.
//! - **A lost lock stops its body.** A lock is lost when its lease is not renewed in time, or when an operator takes it away. Before
//!   *every* poll, the polling thread compares the lease with the clock. A body whose lock is lost is dropped where it awaits, even if
//!   its process was paused for a minute. The caller gets [`LockError::Lost`].
//! - **Nothing is left behind.** Drop the future of a call at any await, let its body panic, or kill the process: the lock becomes free.
//!   That happens at once while the process lives, and otherwise when the lease's TTL is over.
//! - **The result is the body's.** A release that fails is retried in the background and never replaces a result.
//!
//! No lock can interrupt a poll that does not return: a long computation, or a virtual machine that is paused during the poll. If the
//! poll outlasts the lease, another process may begin before it ends. If that would do harm, let the database compare the fencing token:
//! see [`Locked`].
//!
//! # Names
//!
//! A name is a template over the function's arguments, checked at compile time: [the attribute's page](macro@etcd_locked) has the
//! grammar. A placeholder's value is a [`LockKey`]. Values are escaped, so each fills exactly one segment: `orders/<id>` with the id
//! `1/2` locks `orders/1%2F2`. Declare names that several functions share once, with [`lock_names!`].
//!
//! The key in etcd is `locks/<name>/<lease id>`, and its value says who holds the lock ([`Holder`]). `etcdctl get --prefix
//! locks/orders/42/` shows the holder; deleting that key takes the lock away. `etcdctl lock locks/orders/42`, Go's `concurrency.Mutex`
//! and the server's lock service wait for our calls on that name, and our calls wait for them. Those clients do not stop their work when
//! their lock is lost, and they wait for every key below their name.
//!
//! # Logs, metrics, spans
//!
//! Log lines go to `tracing`: install a subscriber, or a lost lock prints nothing. [`codes`] lists the warnings and errors, with what to
//! do. [`telemetry`] lists the metrics (feature `metrics`) and the spans of a call. A subscriber must not block, for example on a full
//! pipe, and neither may a metrics recorder. Both run on callers' threads and on the engine's thread, which renews leases.
//!
//! # Engines and executors
//!
//! All annotated functions of a process share one engine: one thread, one connection, one lease for each TTL in use. The engine talks to
//! etcd on its own thread, so a handler that blocks its executor does not delay renewals. Callers only wait on channels, so they run on
//! any executor. A lock passes between calls of one process in microseconds. [`Locks`] is an additional engine, and
//! `ETCD_LOCKED_ENDPOINTS=embedded` (feature `embedded`) runs an etcd inside the process.
//!
//! # Features
//!
//! No feature is on by default.
//!
//! | feature | adds |
//! |---|---|
//! | `tls` | `https://` endpoints, client certificates |
//! | `axum`, `actix`, `tonic` | [`LockError`] as a response of that framework |
//! | `testing` | the test kit, for `[dev-dependencies]` |
//! | `embedded` | `ETCD_LOCKED_ENDPOINTS=embedded`: an etcd inside the process |
//! | `sqlx`, `sqlx-0-8` | transactions of sqlx 0.9 (needs Rust 1.94, everything else 1.88), or 0.8, that a paused holder cannot commit; other drivers use [`FenceSql`] |
//! | `etcd-client` | the etcd client: [`Locks::client`], [`Config::connect_with`], the test kit's `client()`, `Compare::from(guard.fence())`. Version 1.0 will not cover it: etcd-client often has breaking releases, and ours follow them |
//! | `uuid` | `uuid::Uuid` in a placeholder |
//! | `templates` | `templates()`, `assert_no_overlaps()` and `assert_all_declared()`: every lock site of the binary |
//! | `metrics`, `opentelemetry`, `serde` | metrics; links between traces; `Serialize` for [`Status`] |
//!
//! # Before you deploy
//!
//! - Use etcd 3.5.33, 3.6.14, 3.7.1 or later: [older ones have known bugs](etcd_bugs). The tests run on 3.4, 3.5, 3.6 and 3.7.
//! - Linux and macOS are supported, Windows is not. The tests run on Linux.
//! - Building needs `protoc` (`apt-get install protobuf-compiler libprotobuf-dev`, `brew install protobuf`), because etcd-client does.
//! - With etcd's access control on, the user needs read and write permission on two ranges: the prefix (`locks/`) and the session keys
//!   next to it (`locks%s/`).
//! - The machines' clocks may show different times, but must run at nearly the same rate (within one per cent).

#![cfg_attr(docsrs, feature(doc_cfg))] // docs.rs marks the items that need a feature

// The attribute's expansion refers to `::etcd_locked`; this makes it work in our own docs and tests too.
#[allow(unused_extern_crates)] // used by expansions only
extern crate self as etcd_locked;

#[doc(hidden)]
#[path = "call/private.rs"]
pub mod __private;
#[cfg(any(feature = "axum", feature = "tonic", feature = "actix"))]
mod answer;
mod api;
mod call;
mod clock;
#[cfg(all(doc, not(doctest)))]
#[doc = include_str!("../docs/codes.md")]
pub mod codes {}
mod engine;
mod metrics;
mod mutex;
#[cfg(doc)]
#[doc = include_str!("../docs/options.md")]
pub mod options {}
#[cfg(doc)]
#[doc = include_str!("../docs/telemetry.md")]
pub mod telemetry {}
#[cfg(feature = "templates")]
mod templates;
#[cfg(feature = "testing")]
pub mod testing;
mod transport;
mod values;

#[cfg(feature = "sqlx")]
pub use crate::api::fenced::sqlx;
#[cfg(feature = "sqlx-0-8")]
pub use crate::api::fenced::sqlx_0_8;
pub use crate::api::{
    Acquire, Acquiring, Append, Current, DefaultGuard, Dialect, Exclusive, Fence, FenceSql, Group,
    LeaseStatus, Listing, LockGuard, LockMode, LockStatus, Locked, Locks, Permit, Shared, Status,
    current, init, lock, shutdown, status,
};
#[cfg(feature = "templates")]
#[doc(hidden)]
pub use crate::call::register::__linkme;
pub use crate::clock::Deadline;
#[cfg(feature = "metrics")]
pub use crate::metrics::BUCKETS;
#[cfg(feature = "templates")]
pub use crate::templates::{
    __TEMPLATES, Template, assert_all_declared, assert_no_overlaps, templates,
};
#[cfg(feature = "tls")]
pub use crate::values::Tls;
pub use crate::values::{
    Config, Contender, Credentials, Cycle, Drained, Holder, LockError, LockKey, LockName,
    LossCause, Name, Queue, RECOMMENDED_ETCD, Segment, Sharing, Standing, Token, etcd_bugs,
};
#[cfg(feature = "etcd-client")]
pub use etcd_client;
pub use etcd_locked_macros::{LockKey, etcd_locked};
