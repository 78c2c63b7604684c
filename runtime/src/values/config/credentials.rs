//! Credentials: the login of a connection.

use std::fmt;

use super::HIDDEN;
use crate::values::setters;

/// User, password and certificates, from a closure given to [`Config::credentials`](crate::Config::credentials).
#[derive(Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct Credentials {
    pub(crate) user: Option<(String, String)>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Tls>,
}

impl Credentials {
    /// Creates credentials that change nothing: those of the [`Config`](crate::Config) apply.
    pub fn new() -> Self {
        Self::default()
    }

    setters! { self:
        /// Sets the etcd user and password, in place of [`Config::user`](crate::Config::user).
        user(name: impl Into<String>, password: impl Into<String>) {
            self.user = Some((name.into(), password.into()));
        }
        /// Sets certificates for `https` endpoints, in place of all of [`Config::tls`](crate::Config::tls).
        #[cfg(feature = "tls")]
        tls(tls: Tls) { self.tls = Some(tls); }
    }

    /// Returns true if there is a client certificate.
    pub(super) fn has_identity(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.as_ref().is_some_and(|tls| tls.identity.is_some());
        #[cfg(not(feature = "tls"))]
        false
    }

    /// Returns these credentials, completed by the others.
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

/// Certificates for `https` endpoints, all of them as PEM texts (not file names).
#[cfg(feature = "tls")]
#[derive(Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct Tls {
    authorities: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    domain: Option<String>,
}

#[cfg(feature = "tls")]
impl Tls {
    /// Trusts the system's authorities, has no client certificate, and expects each endpoint's host name.
    pub fn new() -> Self {
        Self::default()
    }

    setters! { self:
        /// Trusts only these authorities' certificates. Variable: `ETCD_LOCKED_CACERT` (a file, read again for each connection).
        ca_pem(certificates: impl Into<Vec<u8>>) { self.authorities = Some(certificates.into()); }
        /// Sets the client certificate, for an etcd with `--client-cert-auth`. Variables: `ETCD_LOCKED_CERT`, `ETCD_LOCKED_KEY` (files,
        /// read again for each connection).
        ///
        /// A warning (`certificate.ends`) is logged once a day during the last two weeks before its end. If it is valid for less than six
        /// weeks, that is the last third of this time.
        identity_pem(certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) {
            self.identity = Some((certificate.into(), key.into()));
        }
        /// Sets the name in the server's certificate, if it is not the endpoint's host.
        domain(name: impl Into<String>) { self.domain = Some(name.into()); }
    }

    pub(crate) fn certificate(&self) -> Option<&[u8]> {
        self.identity.as_ref().map(|(certificate, _)| &**certificate)
    }

    /// Checks for texts that rustls would take for an empty list, or refuse without naming them.
    pub(crate) fn check(&self) -> Result<(), String> {
        let certificate = |pem: &[u8]| contains(pem, b"-----BEGIN CERTIFICATE-----");
        if self.authorities.as_deref().is_some_and(|pem| !certificate(pem)) {
            return Err("tls: the authorities' PEM lacks `BEGIN CERTIFICATE`".into());
        }
        if let Some((cert, key)) = &self.identity {
            if !certificate(cert) {
                return Err("tls: the client certificate's PEM lacks `BEGIN CERTIFICATE`".into());
            }
            if !contains(key, b"PRIVATE KEY-----") {
                return Err("tls: the client key's PEM lacks `PRIVATE KEY`".into());
            }
            if contains(key, b"ENCRYPTED") {
                return Err(
                    "tls: the client key is encrypted: decrypt it, `openssl pkey -in encrypted.pem -out key.pem`".into());
            }
        }
        Ok(())
    }

    pub(crate) fn options(&self) -> etcd_client::TlsOptions {
        let mut options = etcd_client::TlsOptions::new();
        options = match &self.authorities {
            Some(pem) => options.ca_certificate(etcd_client::Certificate::from_pem(pem)),
            None => options.with_native_roots(),
        };
        if let Some((certificate, key)) = &self.identity {
            options = options.identity(etcd_client::Identity::from_pem(certificate, key));
        }
        if let Some(domain) = &self.domain {
            options = options.domain_name(domain);
        }
        options
    }
}

#[cfg(feature = "tls")]
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("authorities", &self.authorities.is_some())
            .field("identity", &self.identity.as_ref().map(|_| HIDDEN))
            .field("domain", &self.domain)
            .finish()
    }
}

#[cfg(feature = "tls")]
fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
