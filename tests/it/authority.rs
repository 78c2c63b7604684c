//! Certificate authority for etcds with TLS. Each test makes its own certificates, so none can expire in the repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// Files of a client, as an operator puts them on its disk.
pub(crate) struct ClientFiles {
    directory: TempDir,
}

impl ClientFiles {
    /// Writes an authority's certificate, and a client's certificate and key.
    pub(crate) fn of(authority: &Authority, (certificate, key): &(String, String)) -> ClientFiles {
        let files = ClientFiles { directory: tempfile::tempdir().expect("a temporary directory") };
        files.replace(authority, certificate, key);
        files
    }

    /// Replaces the contents of all files.
    pub(crate) fn replace(&self, authority: &Authority, certificate: &str, key: &str) {
        let texts = [authority.pem(), certificate, key];
        for (path, text) in self.paths().iter().zip(texts) {
            fs::write(path, text).expect("a file of the client's");
        }
    }

    /// Replaces the certificate with the first half of this one.
    pub(crate) fn begin_to_replace(&self, certificate: &str) {
        let [_, path, _] = self.paths();
        let half = &certificate[..certificate.len() / 2];
        fs::write(path, half).expect("a file of the client's");
    }

    /// Returns the variables that name them.
    pub(crate) fn environment(&self) -> [(&'static str, String); 3] {
        let variables = ["ETCD_LOCKED_CACERT", "ETCD_LOCKED_CERT", "ETCD_LOCKED_KEY"];
        let mut paths = self.paths().into_iter();
        variables.map(|name| {
            let path = paths.next().expect("a path for each");
            (name, path.display().to_string())
        })
    }

    fn paths(&self) -> [PathBuf; 3] {
        let directory: &Path = self.directory.path();
        ["ca.pem", "client.pem", "client-key.pem"].map(|name| directory.join(name))
    }
}

/// Authority that only clients configured with its certificate trust.
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

    /// Issues a certificate for these names; returns it and its key.
    pub(crate) fn issue(&self, names: &str) -> (String, String) {
        let names: Vec<_> = names.split(' ').map(str::to_owned).collect();
        self.sign(CertificateParams::new(names).expect("good names"))
    }

    /// Issues a certificate for this name that has been valid for a year and expires after this time.
    pub(crate) fn issue_ending(&self, name: &str, after: Duration) -> (String, String) {
        let mut params = CertificateParams::new([name.to_owned()]).expect("a good name");
        let now = SystemTime::now();
        params.not_before = (now - Duration::from_secs(365 * 86_400)).into();
        params.not_after = (now + after).into();
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> (String, String) {
        // etcd presents this certificate as a client, too, when it connects to itself.
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    /// Returns the flags with which etcd presents a certificate for its address and `etcd.example`.
    pub(crate) fn server_flags(&self) -> Vec<String> {
        let [certificate, key] = self.server_files();
        self.issue_server(self);
        vec![
            format!("--cert-file={}", certificate.display()),
            format!("--key-file={}", key.display()),
        ]
    }

    /// Makes `issuer` issue the certificate that an etcd started with these flags presents.
    pub(crate) fn issue_server(&self, issuer: &Authority) {
        let (certificate, key) = issuer.issue("127.0.0.1 etcd.example");
        for (path, text) in self.server_files().iter().zip([certificate, key]) {
            fs::write(path, text).expect("a file of the authority's");
        }
    }

    /// Makes an etcd that restarts with these flags trust `successor` instead, and present a certificate issued by it.
    pub(crate) fn hand_over(&self, successor: &Authority) {
        self.issue_server(successor);
        fs::write(self.file(), successor.pem()).expect("the authority's file");
    }

    /// Returns the files of etcd's certificate and of its key.
    fn server_files(&self) -> [PathBuf; 2] {
        ["server.pem", "server-key.pem"].map(|name| self.directory.path().join(name))
    }
}
