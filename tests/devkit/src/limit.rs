//! Time limits of async tests: every event is awaited under a limit, so no test hangs, and the message names the missing event.

use std::future::{Future, IntoFuture};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::Result;

/// Limit of a single event unless the test sets a shorter one; generous, for busy machines.
pub const PATIENCE: Duration = Duration::from_secs(20);

const LIMIT: Duration = Duration::from_secs(90);

/// Runs a test on a separate runtime.
pub fn run(test: impl Future<Output = ()>) {
    let runtime =
        Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        if timeout(LIMIT, test).await.is_err() {
            panic!("the test did not end within {LIMIT:?}");
        }
    });
    runtime.shutdown_background();
}

/// Awaits one event.
pub async fn within<F: IntoFuture>(what: &str, event: F) -> F::Output {
    within_time(PATIENCE, what, event).await
}

/// Awaits one event under its own limit.
pub async fn within_time<F: IntoFuture>(limit: Duration, what: &str, event: F) -> F::Output {
    match timeout(limit, event).await {
        Ok(output) => output,
        Err(_) => panic!("{what}: not within {limit:?}"),
    }
}

/// Runs a blocking closure on a separate thread, while the tasks of the test continue; panics with its error.
pub async fn blocking<T: Send + 'static>(what: impl FnOnce() -> Result<T> + Send + 'static) -> T {
    let ended = spawn_blocking(what).await.expect("a thread");
    ended.unwrap_or_else(|error| panic!("{error}"))
}
