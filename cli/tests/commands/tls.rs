//! An etcd that speaks TLS, and what is wrong with certificates.

use std::fs;
use std::future::IntoFuture;
use std::process::Output;

use etcd_locked::{Config, Locks, Tls};
use etcd_locked_devkit::process::text;
use etcd_locked_devkit::{Cluster, Setup};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::scene::{PATIENCE, run};

/// Certificate for this machine that is its own authority, and its key.
struct Certificate {
    place: TempDir,
}

impl Certificate {
    fn new() -> Self {
        let place = tempfile::tempdir().expect("a directory");
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]);
        let made = made.expect("a certificate");
        let texts = [made.cert.pem(), made.signing_key.serialize_pem()];
        for (file, text) in ["cert.pem", "key.pem"].iter().zip(texts) {
            fs::write(place.path().join(file), text).expect("a file");
        }
        Self { place }
    }

    fn file(&self, name: &str) -> String {
        self.place.path().join(name).display().to_string()
    }

    /// Etcds that present it.
    fn cluster(&self, size: usize) -> Cluster {
        let flags = [
            format!("--cert-file={}", self.file("cert.pem")),
            format!("--key-file={}", self.file("key.pem")),
        ];
        let setup = Setup::default().flags(flags).direct();
        Cluster::start_with(size, setup).expect("a cluster")
    }

    /// Runs a command that trusts it.
    fn run(&self, cluster: &Cluster, args: &[&str]) -> Output {
        let cacert = self.file("cert.pem");
        let args = [args, &["--cacert", &cacert]].concat();
        run(&cluster.endpoints().join(","), &args)
    }
}

#[test]
fn doctor_tells_a_wrong_authority_from_an_etcd_that_is_down() {
    let certificate = Certificate::new();
    let cluster = certificate.cluster(1);
    let known = text(&certificate.run(&cluster, &["doctor"]));
    assert!(known.contains("the leader"), "{known}");

    let refused = Certificate::new().run(&cluster, &["doctor"]);
    let found = text(&refused);
    assert_eq!(refused.status.code(), Some(1), "{found}");
    let named = format!("BAD {}: invalid peer certificate", cluster.endpoints().concat());
    assert!(found.contains(&named), "{found}");
    assert!(found.contains("look at --endpoints, --cacert:"), "{found}");
    assert!(!found.contains("no endpoint"), "{found}");
}

/// A client that goes from endpoint to endpoint would fail at each third request.
#[test]
fn member_that_is_down_fails_no_command() {
    let certificate = Certificate::new();
    let cluster = certificate.cluster(3);
    let pem = fs::read_to_string(certificate.file("cert.pem")).expect("text");
    let config = Config::new(cluster.endpoints())
        .tls(Tls::new().ca_pem(pem))
        .connect_timeout(PATIENCE)
        .wait_forever();
    let runtime = Runtime::new().expect("a runtime");
    let service = runtime.block_on(Locks::connect(config));
    let service = service.expect("the cluster serves");
    cluster.members()[0].kill().expect("it ends");
    for round in 0..8 {
        let held = runtime.block_on(service.lock("orders/7").into_future());
        let held = held.expect("free");
        for args in [&["who", "orders/7"][..], &["kick", "orders/7", "--yes"]] {
            let done = certificate.run(&cluster, args);
            let text = text(&done);
            assert_eq!(done.status.code(), Some(0), "round {round}: {text}");
        }
        drop(held);
    }
}
