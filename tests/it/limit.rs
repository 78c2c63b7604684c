//! Time limits of the tests: every event is awaited under a limit, so no test hangs, and the message names the missing event.

use std::future::{Future, IntoFuture};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::timeout;

/// Limit of a single event unless the test sets a closer one; generous, for busy machines.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Limit of a whole test.
const LIMIT: Duration = Duration::from_secs(90);

/// Runs a test on a runtime of its own.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        if timeout(LIMIT, test).await.is_err() {
            panic!("the test did not end within {LIMIT:?}");
        }
    });
    runtime.shutdown_background();
}

/// Awaits one event.
pub(crate) async fn within<F: IntoFuture>(what: &str, event: F) -> F::Output {
    within_time(PATIENCE, what, event).await
}

/// Awaits one event under its own limit.
pub(crate) async fn within_time<F: IntoFuture>(limit: Duration, what: &str, event: F) -> F::Output {
    match timeout(limit, event).await {
        Ok(output) => output,
        Err(_) => panic!("{what}: not within {limit:?}"),
    }
}
