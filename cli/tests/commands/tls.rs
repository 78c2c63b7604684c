//! Tests of the command line with TLS: wrong certificates are reported.

use std::fs;
use std::future::{IntoFuture, pending};

use etcd_locked::{Config, Locks, Tls};
use etcd_locked_devkit::{Cluster, Setup};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::scene::{PATIENCE, ends, says};

/// Makes a self-signed certificate for this machine, and its key.
fn certificate() -> TempDir {
    let place = tempfile::tempdir().expect("a directory");
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]);
    let made = made.expect("a certificate");
    for (file, text) in
        [("cert.pem", made.cert.pem()), ("key.pem", made.signing_key.serialize_pem())]
    {
        fs::write(place.path().join(file), text).expect("a file");
    }
    place
}

fn file(certificate: &TempDir, name: &str) -> String {
    certificate.path().join(name).display().to_string()
}

/// A client that went from endpoint to endpoint would fail at each third request.
#[test]
fn wrong_authority_is_named_and_a_dead_member_fails_nothing() {
    let trusted = certificate();
    let flags = [("cert", "cert.pem"), ("key", "key.pem")]
        .map(|(flag, name)| format!("--{flag}-file={}", file(&trusted, name)));
    let setup = Setup::default().flags(flags).direct();
    let cluster = Cluster::start_with(3, setup).expect("a cluster");
    let ends = |trusts: &TempDir, args: &[&str], status| {
        let cacert = file(trusts, "cert.pem");
        let args = [args, &["--cacert", &cacert]].concat();
        ends(&cluster.endpoints().join(","), &args, status)
    };
    says(&ends(&trusted, &["doctor"], 0), &["the leader"]);
    let found = ends(&certificate(), &["doctor"], 1);
    let named = format!("BAD connection: {}: invalid peer certificate", cluster.endpoints()[0]);
    says(&found, &[&named, "(--cacert)"]);
    assert!(!found.contains("no endpoint"), "{found}");

    let pem = fs::read_to_string(file(&trusted, "cert.pem")).expect("text");
    let config = Config::new(cluster.endpoints())
        .tls(Tls::new().ca_pem(pem))
        .connect_timeout(PATIENCE)
        .wait_forever();
    let runtime = Runtime::new().expect("a runtime");
    let service = runtime.block_on(Locks::connect(config)).expect("the cluster serves");
    cluster.members()[0].kill().expect("it ends");
    for _ in 0..8 {
        let held = runtime.block_on(service.lock("orders/7").into_future()).expect("free");
        runtime.spawn(async move { held.hold(pending::<()>()).await });
        for args in [&["who", "orders/7"][..], &["kick", "orders/7", "--yes"]] {
            ends(&trusted, args, 0);
        }
    }
}
