//! Files of credentials, which environment variables name: read when the configuration is made, and again for each connection.

use std::fmt;
use std::path::PathBuf;

use super::credentials::Credentials;
#[cfg(feature = "tls")]
use super::tls::Tls;

/// The files that are configured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    pub(super) user: Option<UserFile>,
    #[cfg(feature = "tls")]
    pub(super) authorities: Option<File>,
    /// Of the client's certificate and of its key.
    #[cfg(feature = "tls")]
    pub(super) identity: Option<(File, File)>,
}

impl Files {
    pub(super) fn is_empty(&self) -> bool {
        #[cfg(feature = "tls")]
        if self.has_certificates() {
            return false;
        }
        self.user.is_none()
    }

    #[cfg(feature = "tls")]
    fn has_certificates(&self) -> bool {
        self.authorities.is_some() || self.identity.is_some()
    }

    /// Leaves the user's file out.
    pub(super) fn without_user(&mut self) {
        self.user = None;
    }

    /// Leaves the certificates' files out.
    #[cfg(feature = "tls")]
    pub(super) fn without_certificates(&mut self) {
        (self.authorities, self.identity) = (None, None);
    }

    /// Reads all files; blocks. An error names the variable and shows neither its value nor what the file has.
    pub(super) fn read(&self) -> Result<Credentials, String> {
        let mut credentials = Credentials::new();
        if let Some(file) = &self.user {
            let (name, password) = file.read()?;
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

/// A file that a variable names.
#[derive(Clone)]
pub(super) struct File {
    pub(super) variable: &'static str,
    pub(super) path: PathBuf,
}

impl File {
    fn read(&self) -> Result<Vec<u8>, String> {
        std::fs::read(&self.path)
            .map_err(|error| self.wrong(format_args!("cannot read the file of this name: {error}")))
    }

    fn wrong(&self, what: impl fmt::Display) -> String {
        format!("`{}`: {what}", self.variable)
    }
}

/// The value is not shown: a key or a password may stand there by mistake.
impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.variable)
    }
}

/// A file with a password.
#[derive(Clone, Debug)]
pub(super) struct UserFile {
    /// Whose password it is; `None` if the file has `name:password`.
    pub(super) name: Option<String>,
    pub(super) file: File,
}

impl UserFile {
    /// Reads the user's name and the password; line ends behind it do not count.
    fn read(&self) -> Result<(String, String), String> {
        let text = String::from_utf8(self.file.read()?);
        let text = text.map_err(|_| self.file.wrong("the file is not UTF-8"))?;
        let text = text.trim_end_matches(['\r', '\n']);
        if text.is_empty() {
            return Err(self.file.wrong("the file is empty"));
        }
        match &self.name {
            Some(name) => Ok((name.clone(), text.to_owned())),
            None => match text.split_once(':') {
                Some((name, password)) => Ok((name.to_owned(), password.to_owned())),
                None => Err(self.file.wrong(
                    "the file has no `:`: write `name:password`, or name the user in `ETCD_LOCKED_USER`",
                )),
            },
        }
    }
}
