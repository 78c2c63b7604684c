//! Source of credentials: the configuration, files named by environment variables, and the user's closure. Files and closure are read
//! again for each connection.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use super::Credentials;
#[cfg(feature = "tls")]
use super::credentials::Tls;

type Providing = Pin<Box<dyn Future<Output = Result<Credentials, String>> + Send>>;

/// The user's closure that provides credentials.
#[derive(Clone)]
pub(super) struct Provider(pub(super) Arc<dyn Fn() -> Providing + Send + Sync>);

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("credentials")
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Source {
    /// From the configuration, with the contents that the files had at that time.
    pub(super) configured: Credentials,
    pub(super) files: Files,
    pub(super) provider: Option<Provider>,
}

impl Source {
    /// Returns true if the next read may return other credentials.
    pub(crate) fn may_change(&self) -> bool {
        self.provider.is_some() || !self.files.is_empty()
    }

    /// Returns true if there is a user, or may be one.
    pub(crate) fn authenticates(&self) -> bool {
        self.provider.is_some() || self.configured.user.is_some()
    }

    /// Returns true if etcd may check permissions for each key: if the user is not root, or is named by a certificate.
    pub(crate) fn has_limits(&self) -> bool {
        match &self.configured.user {
            Some((name, _)) => name != "root",
            None => self.provider.is_some() || self.configured.has_identity(),
        }
    }

    /// Returns the credentials that need no reading; `None` if the closure must be called first.
    pub(crate) fn at_first(&self) -> Option<&Credentials> {
        self.provider.is_none().then_some(&self.configured)
    }

    /// Reads the files, off the engine's thread, and calls the closure. An error says what is wrong without showing secrets of the files.
    /// The error of the closure is shown, escaped and cut.
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

/// The configured files.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    /// The password's file, with its user; `None` if the file contains `name:password`.
    pub(super) user: Option<(Option<String>, File)>,
    pub(super) authorities: Option<File>,
    /// The files of the client's certificate and of its key.
    pub(super) identity: Option<(File, File)>,
}

impl Files {
    fn is_empty(&self) -> bool {
        self.user.is_none() && !self.has_certificates()
    }

    fn has_certificates(&self) -> bool {
        self.authorities.is_some() || self.identity.is_some()
    }

    /// Reads all files; blocks. An error names the variable, and shows neither its value nor contents of the file.
    pub(super) fn read(&self) -> Result<Credentials, String> {
        let mut credentials = Credentials::new();
        if let Some((name, file)) = &self.user {
            let (name, password) = file.read_user(name.as_deref())?;
            credentials = credentials.user(name, password);
        }
        #[cfg(feature = "tls")]
        if self.has_certificates() {
            let mut tls = Tls::new();
            if let Some(file) = &self.authorities {
                tls = tls.ca_pem(file.read()?);
            }
            if let Some((certificate, key)) = &self.identity {
                tls = tls.identity_pem(certificate.read()?, key.read()?);
            }
            credentials = credentials.tls(tls);
        }
        Ok(credentials)
    }
}

/// A file named by a variable.
#[derive(Clone)]
pub(super) struct File {
    pub(super) variable: &'static str,
    pub(super) path: PathBuf,
}

impl File {
    fn read(&self) -> Result<Vec<u8>, String> {
        std::fs::read(&self.path)
            .map_err(|error| self.wrong(format_args!("cannot read the file: {error}")))
    }

    /// Reads a password, preceded by the user's name if `name` is `None`. Trailing line ends are ignored.
    fn read_user(&self, name: Option<&str>) -> Result<(String, String), String> {
        let text = String::from_utf8(self.read()?);
        let text = text.map_err(|_| self.wrong("the file is not UTF-8"))?;
        let text = text.trim_end_matches(['\r', '\n']);
        if text.is_empty() {
            return Err(self.wrong("the file is empty"));
        }
        let user = name.map(|name| (name, text)).or_else(|| text.split_once(':'));
        let user = user.map(|(name, password)| (name.to_owned(), password.to_owned()));
        user.ok_or_else(|| {
            self.wrong("the `:` is missing in the file: write `name:password`, or set the user in `ETCD_LOCKED_USER`")
        })
    }

    fn wrong(&self, what: impl fmt::Display) -> String {
        format!("`{}`: {what}", self.variable)
    }
}

/// Hides the value, which may be a key or a password by mistake.
impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.variable)
    }
}
