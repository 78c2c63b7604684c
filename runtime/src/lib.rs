//! One attribute on an `async fn`: it runs in one place at a time, under a distributed lock in etcd.
//!
//! # What do you want?
//!
//! | you want | you write |
//! |---|---|
//! | one at a time for each order | `#[etcd_locked("orders/<id>")]` |
//! | not to wait longer than two seconds | [`wait = "2s"`](options#wait), or until the request is due [`deadline = request.due`](options#deadline) |
//! | to be told at once that it is taken | [`wait = "none"`](options#wait) |
//! | a job that one replica does, and the others leave out | [`wait = "none", on_held = "skip"`](options#on_held), and [`at_least = "1m"`](options#at_least) against clocks that differ |
//! | two accounts at once, without deadlocks | `#[etcd_locked("accounts/<from>", "accounts/<to>")]` |
//! | the lock in some calls only | [`when = !dry_run`](options#when) |
//! | to call such a function from one that has the lock | [`reentrant`](options#reentrant) |
//! | readers who run together | [`shared`](options#shared) |
//! | at most five at a time, over all processes | [`permits = 5`](options#permits) |
//! | a body that ends after 30 s | [`at_most = "30s"`](options#at_most) |
//! | a body that a lost client does not cut in half | [`detach`](options#detach) |
//! | a body that goes on when its lock is lost | [`on_lost = "continue"`](options#on_lost) |
//! | a crashed holder's name free earlier, or later | [`ttl = "30s"`](options#ttl) |
//! | an answer that does not wait for the release | [`release = "background"`](options#release) |
//! | a helper that cannot be called without the lock | [`guard = order`](options#guard) and `&`[`Locked<Order>`](Locked) |
//! | a database that refuses a holder which was paused | [`token`](Locked::token), or the feature `sqlx`: `guard.begin_fenced(&db)` |
//! | a name that cannot be misspelt | [`lock_names!`] |
//! | every method of a type under its lock | [the attribute on its `impl` block](#all-methods-of-a-type); `#[etcd_locked(unlocked)]` leaves one out |
//! | an error of your own | [`From<LockError>`](LockError), or [`map_err`](options#map_err), [`on_error`](options#on_error) |
//! | an answer for a web framework | [the feature `axum`, `actix` or `tonic`](#as-an-answer) |
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
//! #[derive(Debug)]
//! enum AppError {
//!     Lock(LockError),
//!     OutOfStock,
//! }
//!
//! impl From<LockError> for AppError {
//!     fn from(error: LockError) -> Self {
//!         Self::Lock(error)
//!     }
//! }
//!
//! #[etcd_locked("orders/<id>")]
//! async fn ship(id: u64) -> Result<Receipt, AppError> {
//!     // No other call ships order `id` now: no other task, no other process, no other machine.
//!     Ok(Receipt)
//! }
//! ```
//!
//! Configure where etcd is, by `ETCD_LOCKED_ENDPOINTS=http://10.0.0.1:2379,http://10.0.0.2:2379` or in code, and say
//! goodbye when the process ends:
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
//! That is all there is to it; what follows is for the day on which something is not as it should be.
//!
//! # What it promises
//!
//! - **One at a time.** Of all calls with the same name, in all processes that share an etcd, one body is polled at a time.
//! - **In order.** Processes are served in the order in which their calls reached etcd, calls of one process in the order in
//!   which they were made. Where etcd's answer to a request was lost, its call queues anew.
//! - **A lost lock stops its body.** A lock is lost when the lease cannot be renewed in time, or when an
//!   operator takes it away. Before *every* poll the body's lease is compared with the clock, on the thread that polls: the
//!   body of a process that was stopped for a minute is not polled again when it goes on. It is dropped where it awaits, and
//!   the caller gets [`LockError::Lost`]. (`on_lost = "continue"` lets it run on, and [`Locked::is_held`] shows it.)
//! - **Nothing is left behind.** Drop the future of a call wherever it awaits, let its body panic, kill the process: the lock
//!   is free, at once where the process lives, after the lease's TTL where it does not.
//! - **The answer is the body's.** A release that fails is carried on in the background and never replaces a result.
//!
//! What no lock can promise: a single poll that does not return (a thread that sleeps, a long computation, a stopped
//! virtual machine) cannot be interrupted. If it outlasts the lease, another process may begin before it ends. Where that
//! must not hurt, give the store the fencing token and let it refuse what is too old:
//!
//! ```
//! # use etcd_locked::{LockError, etcd_locked};
//! # enum AppError { Lock(LockError), TooLate }
//! # impl From<LockError> for AppError { fn from(error: LockError) -> Self { Self::Lock(error) } }
//! # async fn execute(_sql: &str, _id: u64, _token: i64) -> Result<u64, AppError> { Ok(1) }
//! #[etcd_locked("accounts/<id>", guard = account)]
//! async fn close_account(id: u64) -> Result<(), AppError> {
//!     let close = "update accounts set state = 'closed', token = $2 where id = $1 and token <= $2";
//!     match execute(close, id, account.token().as_i64()).await? {
//!         0 => Err(AppError::TooLate), // no row: a later holder has written
//!         _ => Ok(()),
//!     }
//! }
//! ```
//!
//! With the feature `sqlx`, `account.begin_fenced(&db)` does that for a whole transaction, and needs no column for the token.
//!
//! `guard = account` is the lock that is held, as a value: [`Locked`]. What may run under a lock only takes `&Locked<Account>`, and
//! cannot be called without it.
//!
//! # Names
//!
//! A name is a template over the function's arguments, checked while compiling: `"orders/<id>"`,
//! `"shops/<shop.id>/stock/<sku>"`, `"shards/<self.shard>"`. A placeholder names a binding, also one inside a pattern:
//!
//! ```
//! # use etcd_locked::{LockError, etcd_locked};
//! # struct State<T>(T); struct Path<T>(T); #[derive(Clone)] struct Db;
//! #[etcd_locked("orders/<id>", wait = "5s", ttl = "30s")]
//! async fn handler(State(db): State<Db>, Path(id): Path<u64>) -> Result<(), LockError> {
//!     let _ = (db, id);
//!     Ok(())
//! }
//! ```
//!
//! Values are escaped, so that whatever they contain they are one segment of one name: `orders/<id>` with the id `1/2`
//! locks `orders/1%2F2`. What can stand in a placeholder is a [`LockKey`]. Names that several functions share are declared
//! once, by [`lock_names!`], where a misspelt one does not compile. A function may take several names: all or none. The
//! attribute's page, [`etcd_locked`](macro@etcd_locked), has the grammar, and [`options`] has each option with an example.
//!
//! The book in the repository lists each mistake that the compiler refuses, with what it says. The feature `templates` lists every lock
//! site of a binary (`templates()`: template, function, place, options), for a check at start-up, for documentation, or for
//! the access rights of a service, and `assert_no_overlaps()` finds in a test what only the whole binary can show: two crates
//! that take the same lock by accident, or functions of one name that differ in `permits`.
//!
//! In etcd the key is `locks/<name>/<lease id>` and its value says who holds it ([`Holder`]):
//! `etcdctl get --prefix locks/orders/42/` answers "who?", deleting that key takes the lock away. `etcdctl lock
//! locks/orders/42`, Go's `concurrency.Mutex` and the server's lock service on that name wait behind us, and we behind them.
//! They do not stop their work when the lock is lost, and wait for every key below their name; `examples/interop` in the
//! repository has contenders in several languages, and says what each does not promise.
//!
//! # All methods of a type
//!
//! A lock that a method forgets does not exclude. On an `impl` block, the attribute locks every method that has a receiver, and
//! what needs no lock says so. A method that says nothing and cannot take the lock does not compile:
//!
//! ```
//! # use etcd_locked::{LockError, etcd_locked};
//! struct Account {
//!     id: u64,
//!     balance: u64,
//! }
//!
//! #[etcd_locked("accounts/<self.id>", wait = "5s")]
//! impl Account {
//!     async fn debit(&mut self, amount: u64) -> Result<(), LockError> {
//!         self.balance = self.balance.saturating_sub(amount);
//!         Ok(())
//!     }
//!
//!     #[etcd_locked(shared)] // the same name, and an option more
//!     async fn balance(&self) -> Result<u64, LockError> {
//!         Ok(self.balance)
//!     }
//!
//!     #[etcd_locked("audits/<self.id>", wait = "1s")] // a name of its own
//!     async fn audit(&self) -> Result<(), LockError> {
//!         Ok(())
//!     }
//!
//!     #[etcd_locked(unlocked)]
//!     fn id(&self) -> u64 {
//!         self.id
//!     }
//!
//!     fn new(id: u64) -> Self {
//!         Account { id, balance: 0 } // no receiver: left alone
//!     }
//! }
//! ```
//!
//! `impl Trait for Account` will do as well, with `#[async_trait]` or without. [The attribute's
//! page](macro@etcd_locked#impl-blocks) has the rules.
//!
//! # Timeouts and contention
//!
//! A call queues for ten seconds unless `wait` says otherwise, then it answers [`LockError::Timeout`] with the holder's
//! record; `wait = "none"` tries once. A job that one replica should do while the others go on, those too whose clock is a
//! little late:
//!
//! ```
//! # use etcd_locked::etcd_locked;
//! #[etcd_locked("jobs/nightly", wait = "none", on_held = "skip", at_least = "1m")]
//! async fn nightly() {
//!     // one replica is here; for the others the call has returned
//! }
//! ```
//!
//! Where the type can carry no error, as here, any other failure (etcd out of reach, say) is reported as a `tracing` error
//! event: have a subscriber for it, or return `Result<Option<_>, _>`, which carries it.
//!
//! When etcd itself cannot be reached, a call is refused with [`LockError::Backend`] after about the connect time-out (5 s
//! unless configured), whatever its `wait`: silence is never taken for "held".
//!
//! A function that returns something else than a `Result` says what to answer:
//!
//! ```
//! # use etcd_locked::{LockError, etcd_locked};
//! # struct Response(u16);
//! fn unavailable(error: LockError) -> Response {
//!     Response(if error.is_retryable() { 503 } else { 500 })
//! }
//!
//! #[etcd_locked("orders/<id>", on_error = unavailable)]
//! async fn order(id: u64) -> Response {
//!     Response(200)
//! }
//! ```
//!
//! # As an answer
//!
//! A web framework makes an answer of [`LockError`] where a feature says so: `axum` (`IntoResponse`), `actix`
//! (`actix_web::ResponseError`), `tonic` (`From<LockError> for tonic::Status`). Handlers then need no error type of their own: 423
//! for a lock that is held, 503 and `Retry-After` while etcd is out of reach, and so on; [the table](LockError#as-an-answer)
//! has all of them and why. Clients get the template, never a value, a host or an endpoint.
//!
//! ```
//! # #[cfg(feature = "axum")] mod handlers {
//! # mod axum { pub use axum_core::response; pub mod extract { pub struct Path<T>(pub T); } }
//! use axum::extract::Path;
//! use etcd_locked::etcd_locked;
//!
//! #[etcd_locked("orders/<id>", wait = "2s")]
//! async fn ship(Path(id): Path<u64>) -> axum::response::Result<String> {
//!     Ok(format!("order {id} is on its way"))
//! }
//! # }
//! ```
//!
//! It is `actix_web::Result<_>` in a handler of actix-web and `Result<_, tonic::Status>` in a service of tonic. In an error type
//! of your own, pass the variant on: `Self::Lock(error) => error.into_response()`, `error.error_response()`, `error.into()`. In
//! the repository, `examples/services` has one service in each framework.
//!
//! # Shared locks and semaphores
//!
//! `shared` is for those that may run together, and `permits = 5` for at most five at a time, over all processes:
//!
//! ```
//! # use etcd_locked::{LockError, etcd_locked};
//! #[etcd_locked("reports/<day>", shared)]
//! async fn read(day: u32) -> Result<(), LockError> { Ok(()) }
//!
//! #[etcd_locked("reports/<day>")]
//! async fn write(day: u32) -> Result<(), LockError> { Ok(()) }
//!
//! #[etcd_locked("smtp/<region>", permits = 5)]
//! async fn send(region: &str) -> Result<(), LockError> { Ok(()) }
//!
//! # struct Config { exports: u16, patience: std::time::Duration }
//! #[etcd_locked("exports/<tenant>", permits = config.exports, wait = config.patience)] // from a configuration
//! async fn export(config: &Config, tenant: u64) -> Result<(), LockError> { Ok(()) }
//! ```
//!
//! All calls of one name stand in one queue, whatever they are: a writer waits for the readers before it, and later readers for
//! the writer, so neither starves (readers that find others of their process inside join them, for up to 50 ms and a round
//! trip after a writer of another process has asked). Calls may ask for different numbers of permits of one name, as in a
//! rolling deployment: each is served when fewer than its own number of older permits are held or asked for. A plain lock on the name, be it Go's,
//! excludes readers and permits, and waits for them. The tokens of calls that run together lie between those of the calls that were alone
//! before and after, so a store that refuses the late goes on doing so.
//!
//! # Limits and deadlines
//!
//! `deadline = expr` bounds the wait by a point in time, such as the end of a request; `at_most = "5s"` bounds the body, which is
//! dropped before its lock is released ([`LockError::HoldLimit`]). Where a time is written, so can be an expression of type
//! `Duration`, such as `at_most = config.longest`: [the attribute's page](macro@etcd_locked#limits-from-configuration) says when it is
//! evaluated. Web frameworks drop a handler whose client has gone, in the
//! middle of whatever it does (actix-web with `h1_allow_half_closed(false)` only): `detach` runs the body in a task of its own,
//! so that it comes to its end under its lock. Where these tasks end with the server (actix-web's workers), [`shutdown`] goes
//! before the server's own stop.
//! `when = expr` takes the lock only if that is so. A function that is called with and without the lock, by itself or from
//! another that has it, is `reentrant`:
//!
//! ```
//! # use std::{sync::Arc, time::Instant};
//! # use etcd_locked::{LockError, etcd_locked};
//! # struct Shop;
//! impl Shop {
//!     #[etcd_locked("orders/<id>", deadline = due, at_most = "30s", detach)]
//!     async fn ship(self: Arc<Self>, id: u64, due: Instant) -> Result<(), LockError> {
//!         // The client may go now: this is either done, or dropped after 30 s.
//!         self.bill(id).await
//!     }
//!
//!     #[etcd_locked("orders/<id>", reentrant)]
//!     async fn bill(&self, id: u64) -> Result<(), LockError> {
//!         Ok(()) // under the lock of `ship`, or under its own
//!     }
//! }
//! ```
//!
//! # Health
//!
//! [`status()`] shows what the process holds and waits for, its leases, and whether it is [`ready`](Status::ready): etcd answers and no
//! shutdown has begun. A health check may ask each second, with ten thousand locks held. The feature `serde` makes it the answer of an
//! endpoint; in the repository, the services of `examples/services` have `/ready` and `/locks`.
//!
//! # Logs
//!
//! Lines go to `tracing`. Each warning and error has a field `code`, such as `etcd.lost` or `lock.lost`, which stays as it is when the
//! text changes; [`codes`] lists them, with what to do. A fault is one line, not one for each call: etcd lost, etcd back (with how
//! long it was away and how many calls were refused), the locks that went with a lease. `info` has the connection and the end of a
//! shutdown, `debug` each step of each lock. A subscriber must not block, such as on a pipe that is full: lines are written on
//! threads of callers and on the engine's own, which renews leases.
//!
//! # Metrics
//!
//! The feature `metrics` reports to the recorder of the [`metrics`](https://docs.rs/metrics) crate, if the process has one:
//!
//! | | | labels |
//! |---|---|---|
//! | `etcd_locked_wait_seconds` | histogram: how long a call waited | `lock`; `outcome`: `granted`, `held`, `timeout`, `deadlock`, `dropped` with its caller, `failed` |
//! | `etcd_locked_waiters` | gauge: how many calls of this process wait | `lock` |
//! | `etcd_locked_held` | gauge: how many calls of this process hold their locks, until they give them back, lost or not | `lock` |
//! | `etcd_locked_hold_seconds` | histogram: how long a lock was held, in the same sense | `lock` |
//! | `etcd_locked_handovers_total` | counter: locks that were got from another call | `lock`; `kind`: `local`, handed over in this process; `remote`, after another client of etcd |
//! | `etcd_locked_lost_total` | counter: calls whose locks were lost | `lock`; `cause`: `expired`, `revoked`, `deleted`, … as in [`LossCause`] |
//! | `etcd_locked_deadlocks_total` | counter: calls that were refused to end a deadlock | `lock` |
//! | `etcd_locked_history_lost_total` | counter: how often etcd has lost its history, and with it every lock | |
//! | `etcd_locked_reachable` | gauge: 1 while etcd answers, 0 once it is lost | |
//! | `etcd_locked_lease_remaining_seconds` | gauge: how long the lease nearest to its end, of those that are renewed, lived without another renewal; infinite without a lease | |
//! | `etcd_locked_request_seconds` | histogram: how long an exchange with etcd took | `kind`: `grant`, `keep_alive`, `revoke`, `read`, `write`; `outcome`: `ok`, `refused`, `unavailable`, `unknown` |
//!
//! Counters and gauges of a template are there, with the value 0, from its first call on, so install the recorder before that.
//! [`BUCKETS`] fit the histograms. A recorder must not block: it runs on threads of callers and on the engine's own, which renews leases.
//!
//! `lock` is the template, never a value; of a call with several names it is the first. A lock that is used again (`reentrant`) is not
//! counted again.
//!
//! # Spans and traces
//!
//! A call has two [`tracing`](https://docs.rs/tracing) spans of level `INFO`, children of its caller's: `lock.wait` from the call to its
//! answer, and `lock.held` around the body, whose own spans and events are below it. Without a subscriber none is made.
//!
//! | field | of | |
//! |---|---|---|
//! | `lock.template` | both | the template; of a call with several names all of them |
//! | `lock.name` | both | the names with their values, if [`Config::names_in_spans`] says so: a value may be personal data |
//! | `lock.mode` | both | `exclusive`, `shared` or `permit` |
//! | `lock.outcome` | both | of the wait as in `etcd_locked_wait_seconds`; of the body `done`, `lost`, `hold_limit`, `shutting_down`, and nothing if its caller dropped it |
//! | `lock.waited_ms` | `lock.wait` | how long it took, in milliseconds |
//! | `lock.token`, `lock.lease` | `lock.held` | the token as [`Token::as_i64`] has it, and the lease as etcdctl shows it |
//!
//! In a body `Span::current()` is `lock.held`: a function that records fields of its own span has `#[tracing::instrument]` below
//! `#[etcd_locked]`.
//!
//! With the feature `opentelemetry` and a layer of `tracing-opentelemetry` 0.34, the record of a lock in etcd names the place of its call
//! in a trace ([`Holder::trace`]), and the `lock.wait` of a call that waits for about a second, or that is refused with [`LockError::Held`] or
//! [`Timeout`](LockError::Timeout), is linked to it: from a slow request one gets to the one that held it up. It costs a read
//! of one key a second for each name that is waited for, at most twenty a second in each process.
//!
//! # By hand
//!
//! [`lock`](lock()) takes a lock without the attribute, and [`LockGuard`] is what one gets, with its proof
//! ([`locked`](LockGuard::locked)); its names are checked when it is awaited:
//!
//! ```no_run
//! # use std::time::Duration;
//! # async fn print() {}
//! # async fn example(day: u32) -> Result<(), etcd_locked::LockError> {
//! let held = etcd_locked::lock(format!("statements/{day}")).wait(Duration::from_secs(2)).await?;
//! held.hold(print()).await?; // stops when the lock is lost
//! held.release().await
//! # }
//! ```
//!
//! # Engines and executors
//!
//! All annotated functions of a process share one engine: one thread of its own, one connection, one lease for each TTL in
//! use. Because etcd is waited for on that thread, a handler that blocks its executor does not stop the renewal of leases, and
//! because callers only wait on channels, they run on any executor. What needs no waiting is decided on the caller's own
//! thread: a lock that passes from call to call inside a process takes microseconds. [`Locks`] is an engine of one's own: `locks = expr` uses it for
//! one function, [`Locks::scope`] for a future, [`Locks::set_default`] for a thread.
//!
//! A process that is forked after its first lock has none of this: its calls are refused at once
//! ([`LockError::NotInitialized`]), and what it drops leaves the locks of its parent alone. Fork before the first lock, or let the
//! new process `exec` a program.
//!
//! # Without a server
//!
//! With the feature `embedded`, `ETCD_LOCKED_ENDPOINTS=embedded` (or `Config::embedded()`) is an etcd inside the process, to
//! run and to try out: the whole path but for the network, and no other process sees it. It is never used unasked.
//! [`Config::connect_with`] is for an etcd that is reached in a way of your own.
//!
//! # Testing
//!
//! The feature `testing`, for `[dev-dependencies]`, has a kit for tests of annotated functions: an etcd and an engine for
//! each test, a clock that the test moves, and everything that can happen to a lock. The shortest useful test:
//!
//! ```
//! # #[cfg(feature = "testing")] mod shortest {
//! # use etcd_locked::{LockError, etcd_locked};
//! # #[etcd_locked("orders/<id>", wait = "10s")]
//! # async fn ship(id: u64) -> Result<(), LockError> { Ok(()) }
//! use etcd_locked::testing;
//!
//! # /*
//! #[tokio::test]
//! # */
//! # pub
//! async fn a_busy_order_waits() -> Result<(), LockError> {
//!     let etcd = testing::start().await?;
//!     let held = etcd.second().await?.lock("orders/7").await?; // as if another process
//!     let call = tokio::spawn(ship(7));
//!     assert_eq!(etcd.waiting().await, ["orders/7"]);
//!     held.release().await?;
//!     call.await.expect("no panic")
//! }
//! # }
//! # #[cfg(feature = "testing")]
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
//! #     .block_on(shortest::a_busy_order_waits()).unwrap();
//! ```
//!
//! `etcd.advance(d)` moves the clock: a wait of ten seconds is over in a millisecond, and leases are renewed on the way.
//! `etcd.lose("orders/7")` takes a lock away, `partition`, `freeze_keepalives`, `delay` and `fail_next` disturb the
//! connection; `held()` and `waiting()` are there to assert on. Such tests run in parallel, and the process's own engine is
//! never touched. In the repository, `examples/testing-handlers` tests an axum handler.
//!
//! # Configuration
//!
//! | variable | default | |
//! |---|---|---|
//! | `ETCD_LOCKED_ENDPOINTS` | `ETCDCTL_ENDPOINTS` | endpoints of etcd, separated by commas |
//! | `ETCD_LOCKED_PREFIX` | `locks/` | what every key begins with |
//! | `ETCD_LOCKED_WAIT` | `10s` | how long a call queues, unless its [`wait`](options#wait) says otherwise |
//! | `ETCD_LOCKED_TTL` | `15s` | how long a killed process blocks others, unless [`ttl`](options#ttl) says otherwise |
//! | `ETCD_LOCKED_USER`, `…_PASSWORD_FILE`, `…_CACERT`, `…_CERT`, `…_KEY` | none | credentials; files are read again for each connection |
//!
//! [`Config::from_env`] has all of them. [`Config`] has the same in code, for [`init`] and [`Locks::connect`].
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
//! | `sqlx` | transactions that a holder which was paused cannot commit |
//! | `uuid` | `uuid::Uuid` in a placeholder |
//! | `templates` | `templates()` and `assert_no_overlaps()`: every lock site of the binary |
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
#[cfg(doc)]
#[doc = include_str!("../docs/options.md")]
pub mod options {}
#[cfg(feature = "templates")]
mod templates;
#[cfg(feature = "testing")]
pub mod testing;
mod transport;
mod values;

pub use crate::api::current::{Current, current};
#[cfg(feature = "sqlx")]
pub use crate::api::fenced as sqlx;
pub use crate::api::group::{Append, Group};
pub use crate::api::guard::LockGuard;
pub use crate::api::listing::Listing;
pub use crate::api::lock::{Acquire, Acquiring, lock};
pub use crate::api::locked::{Exclusive, LockMode, Locked, Permit, Shared};
pub use crate::api::locks::{DefaultGuard, Locks};
pub use crate::api::process::{init, shutdown, status};
pub use crate::api::status::{LeaseStatus, LockStatus, Status};
#[cfg(feature = "templates")]
#[doc(hidden)]
pub use crate::call::register::__linkme;
pub use crate::clock::Deadline;
#[cfg(feature = "metrics")]
pub use crate::metrics::BUCKETS;
#[cfg(feature = "templates")]
#[doc(hidden)]
pub use crate::templates::__TEMPLATES;
#[cfg(feature = "templates")]
pub use crate::templates::{Template, assert_no_overlaps, templates};
#[cfg(feature = "tls")]
pub use crate::values::config::Tls;
pub use crate::values::config::{Config, Credentials};
pub use crate::values::cycle::Cycle;
pub use crate::values::drained::Drained;
pub use crate::values::error::LockError;
pub use crate::values::holder::Holder;
#[doc(inline)]
pub use crate::values::loss::LossCause;
pub use crate::values::name::{LockKey, LockName, Name, Segment};
pub use crate::values::queue::{Contender, Queue, Sharing, Standing};
pub use crate::values::token::Token;
pub use crate::values::versions::{RECOMMENDED_ETCD, etcd_bugs};
pub use etcd_client;
pub use etcd_locked_macros::{LockKey, etcd_locked};
