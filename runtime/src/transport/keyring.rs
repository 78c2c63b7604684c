//! Keyring: the credentials of connections, read anew for each one, or the last good ones if that fails.
//!
//! etcd-client takes credentials once for each client, and the engine creates a client for each connection. So a new connection has the
//! current credentials, without our own connector or TLS verifier.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use super::expiry::Expiry;
use crate::clock::{Clock, Moment, by};
use crate::mutex::lock;
use crate::values::{Credentials, Source};

/// Interval between warnings about a certificate's end.
const DAY: Duration = Duration::from_secs(86_400);

/// Credentials of all connections of a client.
pub(super) struct Keyring {
    pub(super) source: Source,
    /// Time limit for reading; after that, the last good credentials are used.
    patience: Duration,
    clock: Arc<dyn Clock>,
    known: Mutex<Known>,
}

/// Result of the last read.
struct Known {
    good: Option<Credentials>,
    /// When the client's certificate ends.
    expiry: Option<Expiry>,
    /// When its end was last logged.
    warned: Option<Moment>,
    /// True if the last read failed.
    fails: bool,
}

impl Keyring {
    pub(super) fn new(source: Source, patience: Duration, clock: Arc<dyn Clock>) -> Self {
        let good = source.at_first().cloned();
        let known =
            Known { expiry: good.as_ref().and_then(Expiry::of), good, warned: None, fails: false };
        Self { source, patience, clock, known: Mutex::new(known) }
    }

    /// Returns the credentials of a new connection: the current ones, or the last good ones. An error if there never were any.
    pub(super) async fn current(&self) -> Result<Credentials, String> {
        let current = match self.source.at_first() {
            Some(constant) if !self.source.may_change() => Ok(constant.clone()),
            _ => {
                let until = self.clock.now() + self.patience;
                let read = by(&*self.clock, until, pin!(self.source.read())).await;
                let late = || Err(format!("credentials not read within {:?}", self.patience));
                self.note(read.unwrap_or_else(late))
            }
        };
        self.warn_of_end();
        current
    }

    /// Records what was read, and returns the credentials to use.
    fn note(&self, read: Result<Credentials, String>) -> Result<Credentials, String> {
        let mut known = lock(&self.known);
        let before = known.good.clone();
        let changed = read.as_ref().is_ok_and(|read| before.as_ref() != Some(read));
        let read = read.and_then(|read| match changed {
            true => sound(&read).map(|()| read),
            false => Ok(read),
        });
        let failed = std::mem::replace(&mut known.fails, read.is_err());
        if changed && let Ok(read) = &read {
            known.expiry = Expiry::of(read);
            known.warned = None;
            known.good = Some(read.clone());
        }
        drop(known); // outside the mutex, because a subscriber may block
        match (&read, &before) {
            (Ok(_), _) if failed => tracing::info!(parent: None, "credentials can be read again"),
            (Ok(_), Some(_)) if changed => {
                tracing::info!(parent: None, "credentials have changed: new connections use them");
            }
            (Err(error), Some(_)) if !failed => {
                tracing::warn!(
                    parent: None,
                    code = "credentials.unreadable",
                    %error,
                    "credentials cannot be read or are incomplete: correct them. Until then, the last good ones stay in use"
                );
            }
            _ => {}
        }
        match (read, before) {
            (Err(_), Some(before)) => Ok(before),
            (read, _) => read,
        }
    }

    /// Logs a warning if the certificate ends soon and none was logged today, because connections may outlive their certificates.
    /// [`current`](Self::current) checks whether there is a new certificate, and warns if there is not.
    pub(super) fn mind_end(self: &Arc<Self>) {
        if lock(&self.known).is_due(self.clock.now()) {
            let keyring = Arc::clone(self);
            tokio::spawn(async move { drop(keyring.current().await) });
        }
    }

    fn warn_of_end(&self) {
        let now = self.clock.now();
        let mut known = lock(&self.known);
        if !known.is_due(now) {
            return;
        }
        known.warned = Some(now);
        let Some(Expiry { ends, .. }) = known.expiry else { return };
        drop(known);
        let what = match SystemTime::now() < ends {
            true => "ends soon: replace it",
            false => "has ended, so etcd refuses new connections: replace it",
        };
        let ends = humantime::format_rfc3339_seconds(ends);
        tracing::warn!(parent: None, code = "certificate.ends", %ends, "this client's certificate {what}");
    }
}

impl Known {
    fn is_due(&self, now: Moment) -> bool {
        let today = self.warned.is_some_and(|warned| now - warned < DAY);
        !today && self.expiry.is_some_and(|it| SystemTime::now() >= it.near)
    }
}

/// Refuses incomplete certificates, and a key that does not match the certificate, as happens while files are being replaced.
#[cfg(feature = "tls")]
fn sound(credentials: &Credentials) -> Result<(), String> {
    use std::error::Error;

    let Some(tls) = &credentials.tls else { return Ok(()) };
    tls.check()?;
    let endpoint = tonic::transport::Endpoint::from_static("https://etcd");
    match endpoint.tls_config(tls.options()) {
        Ok(_) => Ok(()),
        Err(error) => Err(match error.source() {
            Some(source) => format!("tls: {source}"),
            None => format!("tls: {error}"),
        }),
    }
}

#[cfg(not(feature = "tls"))]
fn sound(_: &Credentials) -> Result<(), String> {
    Ok(())
}
