//! Keyring: the credentials of connections, read anew for each one; the last good ones where that fails.
//!
//! etcd-client takes credentials once for each client, and the engine makes a client for each connection. So a connection that is
//! opened anew has the credentials of that moment, without a connector or a TLS verifier of our own.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use super::expiry::Expiry;
use crate::clock::{Clock, Moment, by};
use crate::mutex::lock;
use crate::values::{Credentials, Source};

/// A certificate's end is warned of once in so long.
const DAY: Duration = Duration::from_secs(86_400);

/// The credentials of all connections of a client.
pub(super) struct Keyring {
    pub(super) source: Source,
    /// How long reading may take; after that, the last good credentials serve.
    patience: Duration,
    clock: Arc<dyn Clock>,
    known: Mutex<Known>,
}

/// What was read last.
struct Known {
    good: Option<Credentials>,
    /// When the client's certificate ends.
    expiry: Option<Expiry>,
    /// When its end was warned of last.
    warned: Option<Moment>,
    /// The last read failed.
    fails: bool,
}

impl Keyring {
    pub(super) fn new(source: Source, patience: Duration, clock: Arc<dyn Clock>) -> Self {
        let good = source.at_first().cloned();
        let known =
            Known { expiry: good.as_ref().and_then(Expiry::of), good, warned: None, fails: false };
        Self { source, patience, clock, known: Mutex::new(known) }
    }

    /// Returns the credentials of a new connection: those of now, or the last good ones. An error if there never were any.
    pub(super) async fn current(&self) -> Result<Credentials, String> {
        let current = match self.source.at_first() {
            Some(constant) if !self.source.may_change() => Ok(constant.clone()),
            _ => {
                let until = self.clock.now() + self.patience;
                let read = by(&*self.clock, until, pin!(self.source.read())).await;
                let late = || Err(format!("not read within {:?}", self.patience));
                self.note(read.unwrap_or_else(late))
            }
        };
        self.warn_of_end();
        current
    }

    /// Notes what was read; answers what is to be used.
    fn note(&self, read: Result<Credentials, String>) -> Result<Credentials, String> {
        let mut known = lock(&self.known);
        let before = known.good.clone();
        let read = match read {
            Ok(read) if before.as_ref() == Some(&read) => Ok(read),
            Ok(read) => sound(&read).map(|()| read),
            error => error,
        };
        let fails = read.is_err();
        let failed = std::mem::replace(&mut known.fails, fails);
        let changed = read.as_ref().is_ok_and(|read| before.as_ref() != Some(read));
        if changed && let Ok(read) = &read {
            known.expiry = Expiry::of(read);
            known.warned = None;
            known.good = Some(read.clone());
        }
        drop(known); // a subscriber may keep the log line waiting
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
                    "credentials cannot be read, or are not whole: those of before stay in use, and each new connection tries again"
                );
            }
            _ => {}
        }
        match (read, before) {
            (Err(_), Some(before)) => Ok(before),
            (read, _) => read,
        }
    }

    /// Has the end of the certificate warned of, if that is near and was not done today: connections may last longer than their
    /// certificates. [`current`](Self::current) reads whether there is another one by now, and warns if there is not.
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
            false => "has ended: etcd refuses new connections",
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

/// Refuses certificates that are not whole, and a key that is not the certificate's: files that are being replaced.
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
