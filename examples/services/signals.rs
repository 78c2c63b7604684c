//! When a service is to end.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

/// How long what runs may go on after that. With `LAST_ANSWERS`: less than whoever asks waits before it kills (Kubernetes: 30 s).
pub(crate) const GRACE: Duration = Duration::from_secs(20);

/// How long the server then has for answers that are not yet with their clients; some clients never take theirs.
pub(crate) const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Ready at the first SIGTERM or SIGINT from now on.
pub(crate) fn asked_to_end() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
