//! When a service is to end.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

/// How long what runs may go on after that: less than whoever asks waits before it kills (Kubernetes: 30 s).
pub(crate) const GRACE: Duration = Duration::from_secs(20);

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
