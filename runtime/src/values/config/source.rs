//! Source of credentials: the configuration, files and a closure of the user's, read anew for each connection.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::credentials::Credentials;
use super::files::Files;
use crate::values::text::shown;

/// How much of a closure's error is shown, in characters.
const MESSAGE: usize = 200;

/// Credentials that are being provided.
type Providing = Pin<Box<dyn Future<Output = Result<Credentials, String>> + Send>>;

/// The user's closure that provides credentials.
#[derive(Clone)]
pub(super) struct Provider(Arc<dyn Fn() -> Providing + Send + Sync>);

impl Provider {
    pub(super) fn new<F, C, E>(provide: F) -> Self
    where
        F: Fn() -> C + Send + Sync + 'static,
        C: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        Self(Arc::new(move || {
            let providing = provide();
            Box::pin(async move {
                let provided = providing.await;
                provided.map_err(|error| shown(&error.into().to_string(), MESSAGE))
            })
        }))
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("credentials")
    }
}

/// Where the credentials of connections come from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Source {
    /// As the configuration has them; those in files as they were when it was made.
    configured: Credentials,
    files: Files,
    provider: Option<Provider>,
}

impl Source {
    pub(super) fn new(configured: Credentials, files: Files, provider: Option<Provider>) -> Self {
        Self { configured, files, provider }
    }

    /// Tells whether the next read may have other credentials.
    pub(crate) fn may_change(&self) -> bool {
        self.provider.is_some() || !self.files.is_empty()
    }

    /// Tells whether there is a user, or may be one.
    pub(crate) fn authenticates(&self) -> bool {
        self.provider.is_some() || self.configured.user.is_some()
    }

    /// The credentials that are known without being read; `None` if a closure has to be asked first.
    pub(crate) fn at_first(&self) -> Option<&Credentials> {
        self.provider.is_none().then_some(&self.configured)
    }

    /// Reads the files, off the engine's thread, and asks the closure. An error says what is wrong, and shows no secret of the files.
    /// What the closure says of its own error is shown, escaped and cut.
    pub(crate) async fn read(&self) -> Result<Credentials, String> {
        let mut credentials = Credentials::default();
        if let Some(Provider(provide)) = &self.provider {
            let provided = provide().await;
            credentials = provided.map_err(|error| format!("`credentials` failed: {error}"))?;
        }
        if !self.files.is_empty() {
            let files = self.files.clone();
            let reading = tokio::task::spawn_blocking(move || files.read());
            let read = reading.await.map_err(|error| error.to_string())?;
            credentials = credentials.or(&read?);
        }
        Ok(credentials.or(&self.configured))
    }
}
