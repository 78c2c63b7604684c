//! Development kit: starts an etcd, a cluster, a proxy with faults, and other processes, for everything in the workspace.
//!
//! Everything here blocks the calling thread, needs neither an async runtime nor protoc, and ends what it started when dropped.
//! Only the module `limit`, for async tests, needs tokio.

pub mod binary;
mod cluster;
mod database;
mod gateway;
mod guard;
pub mod http;
#[cfg(feature = "tokio")]
pub mod limit;
mod member;
pub mod port;
pub mod process;
mod proxy;
#[cfg(feature = "terminal")]
mod terminal;
mod wait;
mod worker;

pub use self::cluster::Cluster;
pub use self::database::{MariaDb, Postgres};
pub use self::gateway::{Gateway, KeyValue, Status};
pub use self::member::{Member, Setup};
pub use self::process::Process;
pub use self::proxy::{Direction, Proxy};
#[cfg(feature = "terminal")]
pub use self::terminal::Terminal;
pub use self::wait::until;
pub use self::worker::Worker;

/// Result of the kit, whose error says what failed and why.
pub type Result<T> = std::result::Result<T, String>;

/// Asserts that a value matches a pattern, and panics with the value.
#[macro_export]
macro_rules! assert_matches {
    ($value:expr, $pattern:pat $(if $guard:expr)? $(,)?) => {
        match $value {
            $pattern $(if $guard)? => {}
            ref other => panic!("{other:?} is not {}", stringify!($pattern $(if $guard)?)),
        }
    };
}

/// Locks a mutex whose data stays valid even if a thread panicked while it held it.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
