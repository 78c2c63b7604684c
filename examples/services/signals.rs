//! Signals that end a service, and the time it has to end.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

/// Time that running bodies have after the signal. With `LAST_ANSWERS` it is less than the time after which the sender of
/// the signal kills the process (Kubernetes: 30 s).
pub(crate) const GRACE: Duration = Duration::from_secs(20);

/// Least time for which the server still listens after the signal, and reports that it is not ready. It is longer than the period of
/// a balancer's probes. Zero is enough if the balancer removes the replica before the signal, as with `examples/ops/kubernetes`.
pub(crate) const NOTICE: Duration = Duration::from_secs(2);

/// Time that the server then has to send its last responses, because some clients never read theirs.
pub(crate) const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Returns a future that completes at the next SIGTERM or SIGINT.
pub(crate) fn asked_to_end() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
