//! Certificate authority for etcds with TLS: certificates are made for each test, so none can expire in the repository.

use std::fs;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// An authority that only clients configured with its certificate trust.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    directory: TempDir,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let mut params = CertificateParams::new([]).expect("no names, no bad names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        let authority = Authority {
            issuer: Issuer::new(params, key),
            pem,
            directory: tempfile::tempdir().expect("a temporary directory"),
        };
        fs::write(authority.file(), &authority.pem).expect("the authority's file");
        authority
    }

    /// Returns its own certificate.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns the file with its own certificate.
    pub(crate) fn file(&self) -> PathBuf {
        self.directory.path().join("authority.pem")
    }

    /// Issues a certificate for this name; returns it and its key.
    pub(crate) fn issue(&self, name: &str) -> (String, String) {
        let mut params = CertificateParams::new([name.to_owned()]).expect("a good name");
        // etcd presents this certificate as a client, too, when it connects to itself.
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    /// Returns the flags with which etcd presents a certificate for its address.
    pub(crate) fn server_flags(&self) -> Vec<String> {
        let [certificate, key] = self.server_files();
        self.issue_server(self);
        vec![
            format!("--cert-file={}", certificate.display()),
            format!("--key-file={}", key.display()),
        ]
    }

    /// Has `issuer` issue the certificate that an etcd started with these flags presents.
    pub(crate) fn issue_server(&self, issuer: &Authority) {
        let (certificate, key) = issuer.issue("127.0.0.1");
        for (path, text) in self.server_files().iter().zip([certificate, key]) {
            fs::write(path, text).expect("a file of the authority's");
        }
    }

    /// Returns the files of etcd's certificate and of its key.
    fn server_files(&self) -> [PathBuf; 2] {
        ["server.pem", "server-key.pem"].map(|name| self.directory.path().join(name))
    }
}
