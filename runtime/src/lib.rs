//! One attribute on an `async fn`: it runs in one place at a time, under a distributed lock in etcd.
//!
//! # What do you want?
//!
//! | you want | you write |
//! |---|---|
//! | one at a time for each order | `#[etcd_locked("orders/<id>")]` |
//! | another wait, readers, permits, a limit for the body, a body that goes on, another TTL, … | [an option of the attribute](options) |
//! | a job that one replica does, and the others leave out | [`wait = "none", on_held = "skip"`](options#on_held), and [`min_hold = "1m"`](options#min_hold) against clocks that differ |
//! | two accounts at once, without deadlocks | `#[etcd_locked("accounts/<from>", "accounts/<to>")]` |
//! | a helper that cannot be called without the lock | [`proof = order`](options#proof) and `&`[`Locked<Order>`](Locked) |
//! | a database that refuses a holder which was paused | [`token`](Locked::token), [`fence_sql`](Locked::fence_sql), or the feature `sqlx`: `guard.fenced(&db)` |
//! | a name that cannot be misspelt | [`lock_names!`] |
//! | every method of a type under its lock | [the attribute on its `impl` block](macro@etcd_locked#impl-blocks); `#[etcd_locked(unlocked)]` leaves one out |
//! | an error of your own | [`From<LockError>`](LockError), or [`map_err`](options#map_err), [`on_error`](options#on_error) |
//! | an answer for a web framework | [the feature `axum`, `actix` or `tonic`](LockError#as-an-answer) |
//! | another etcd than the process's | [`locks = &self.locks`](options#locks) |
//! | a lock without the attribute | [`lock(name).await?`](lock()) |
//! | to see who has it, and to take it away | the command `etcd-locked`, [`Locks::list`], [`status()`] |
//!
//! # In short
//!
//! ```
//! use etcd_locked::{LockError, etcd_locked};
//!
//! # struct Receipt;
//! #[etcd_locked("orders/<id>")]
//! async fn ship(id: u64) -> Result<Receipt, LockError> {
//!     // No other call ships order `id` now: no other task, no other process, no other machine.
//!     Ok(Receipt)
//! }
//! ```
//!
//! Configure where etcd is, by `ETCD_LOCKED_ENDPOINTS=http://10.0.0.1:2379,http://10.0.0.2:2379` or by [`init`], and say goodbye when the
//! process ends. Without [`init`] the first lock reads the environment: [`Config::from_env`] lists the variables and their defaults.
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
//! # What it promises
//!
//! - **One at a time.** Of all calls with the same name, in all processes that share an etcd, one body is polled at a time.
//! - **In order.** Processes are served in the order in which their calls reached etcd, calls of one process in the order in which
//!   they were made. A call whose request to etcd got no answer queues anew.
//! - **A lost lock stops its body.** A lock is lost when its lease is not renewed in time, or when an operator takes it away. Before
//!   *every* poll, the polling thread compares the lease with the clock. A body whose lock is lost is dropped where it awaits, even
//!   after its process was stopped for a minute, and the caller gets [`LockError::Lost`].
//! - **Nothing is left behind.** Drop the future of a call at any await, let its body panic, or kill the process: the lock becomes
//!   free, at once where the process lives, after the lease's TTL where it does not.
//! - **The result is the body's.** A release that fails goes on in the background and never replaces a result.
//!
//! No lock can interrupt a poll that does not return, such as a long computation or a stopped virtual machine. If it outlasts the lease,
//! another process may begin before it ends. Where that must not hurt, let the store compare the fencing token: see [`Locked`].
//!
//! # Names
//!
//! A name is a template over the function's arguments, checked at compile time: [the attribute's page](macro@etcd_locked) has the
//! grammar. A placeholder's value is a [`LockKey`]. Values are escaped, so each is exactly one segment of one name: `orders/<id>` with
//! the id `1/2` locks `orders/1%2F2`. Names that several functions share are declared once, by [`lock_names!`].
//!
//! In etcd the key is `locks/<name>/<lease id>`, and its value says who holds it ([`Holder`]): `etcdctl get --prefix
//! locks/orders/42/` shows the holder, and deleting that key takes the lock away. `etcdctl lock locks/orders/42`, Go's
//! `concurrency.Mutex` and the server's lock service wait for our calls on that name, and our calls wait for them. They do not stop
//! their work when the lock is lost, and wait for every key below their name.
//!
//! # Logs, metrics, spans
//!
//! Log lines go to `tracing`: [`codes`] lists the warnings and errors, with what to do. [`telemetry`] has the metrics (feature
//! `metrics`), and the spans of a call. A subscriber must not block, such as on a full pipe, nor a recorder of metrics: both run on
//! threads of callers and on the engine's own, which renews leases.
//!
//! # Engines and executors
//!
//! All annotated functions of a process share one engine: one thread, one connection, one lease for each TTL in use. The engine waits for
//! etcd on its own thread, so a handler that blocks its executor does not stop renewals. Callers only wait on channels, so they run on
//! any executor. A lock that passes from call to call inside a process takes microseconds. [`Locks`] is an engine of one's own, and
//! `ETCD_LOCKED_ENDPOINTS=embedded` (feature `embedded`) an etcd inside the process.
//!
//! # Features
//!
//! None is on by default.
//!
//! | feature | |
//! |---|---|
//! | `tls` | `https://` endpoints, client certificates |
//! | `axum`, `actix`, `tonic` | [`LockError`] as an answer of that framework |
//! | `testing` | the test kit, for `[dev-dependencies]` |
//! | `embedded` | `ETCD_LOCKED_ENDPOINTS=embedded`: an etcd inside the process |
//! | `sqlx`, `sqlx-0-8` | transactions of sqlx 0.9 (needs Rust 1.94, all else 1.88), or 0.8, that a paused holder cannot commit; for any other driver, [`FenceSql`] |
//! | `etcd-client` | the etcd client: [`Locks::client`], [`Config::connect_with`], the kit's `client()`, `Compare::from(guard.fence())`. Not part of the promise of 1.0: it has breaking releases often, which ours follow |
//! | `uuid` | `uuid::Uuid` in a placeholder |
//! | `templates` | `templates()`, `assert_no_overlaps()` and `assert_all_declared()`: every lock site of the binary |
//! | `metrics`, `opentelemetry`, `serde` | metrics; links between traces; `Serialize` for [`Status`] |
//!
//! # Before you deploy
//!
//! - etcd 3.5.33, 3.6.14, 3.7.1 or later is recommended: [the known bugs of older ones](etcd_bugs). The tests
//!   run on 3.4, 3.5, 3.6 and 3.7.
//! - Linux and macOS are supported, Windows is not. The tests run on Linux.
//! - Building needs `protoc` (`apt-get install protobuf-compiler libprotobuf-dev`, `brew install protobuf`), because
//!   etcd-client does.
//! - With etcd's access control on, the user needs read and write permission on two ranges: the prefix (`locks/`) and the
//!   session keys next to it (`locks%s/`).
//! - The clocks of machines need not agree, only run at nearly the same rate (one per cent).

#![cfg_attr(docsrs, feature(doc_cfg))] // what needs a feature says so, on docs.rs

// The attribute's expansion names this crate; so can our own docs and tests.
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
