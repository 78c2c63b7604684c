//! Credentials: what a connection logs in with.

use std::fmt;

use super::hidden::HIDDEN;
#[cfg(feature = "tls")]
use super::tls::Tls;

/// User, password and certificates, as a closure given to [`Config::credentials`](crate::Config::credentials) provides them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    pub(crate) user: Option<(String, String)>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Tls>,
}

impl Credentials {
    /// Nothing but what the [`Config`](crate::Config) has.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The etcd user to authenticate as, in place of [`Config::user`](crate::Config::user).
    #[must_use]
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// Certificates for `https` endpoints, in place of all of [`Config::tls`](crate::Config::tls).
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// These credentials, where they have any, and else the others.
    pub(super) fn or(self, others: &Self) -> Self {
        Self {
            user: self.user.or_else(|| others.user.clone()),
            #[cfg(feature = "tls")]
            tls: self.tls.or_else(|| others.tls.clone()),
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Credentials");
        shown.field("user", &self.user.as_ref().map(|(name, _)| (name, HIDDEN)));
        #[cfg(feature = "tls")]
        shown.field("tls", &self.tls);
        shown.finish()
    }
}
