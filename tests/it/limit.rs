//! No test hangs: everything is awaited under a limit, and the message says what did not come.

use std::future::{Future, IntoFuture};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::timeout;

/// How long a single event may take where the test has no closer limit of its own; generous, for busy machines.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// How long a whole test may take.
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

/// Awaits one event that has a limit of its own.
pub(crate) async fn within_time<F: IntoFuture>(limit: Duration, what: &str, event: F) -> F::Output {
    match timeout(limit, event).await {
        Ok(output) => output,
        Err(_) => panic!("{what}: not within {limit:?}"),
    }
}
