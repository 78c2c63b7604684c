//! An etcd that speaks TLS, and what is wrong with certificates.

use std::fs;
use std::future::IntoFuture;

use etcd_locked::{Config, Locks, Tls};
use etcd_locked_devkit::process::text;
use etcd_locked_devkit::{Cluster, Setup};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::scene::{PATIENCE, run};

/// Certificate for this machine that is its own authority, and its key.
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
    let run = |trusts: &TempDir, args: &[&str]| {
        let cacert = file(trusts, "cert.pem");
        let args = [args, &["--cacert", &cacert]].concat();
        let output = run(&cluster.endpoints().join(","), &args);
        (output.status.code(), text(&output))
    };
    let (_, known) = run(&trusted, &["doctor"]);
    assert!(known.contains("the leader"), "{known}");
    let (status, found) = run(&certificate(), &["doctor"]);
    assert_eq!(status, Some(1), "{found}");
    let named = format!("BAD connection: {}: invalid peer certificate", cluster.endpoints()[0]);
    assert!(found.contains(&named) && found.contains("(--cacert)"), "{found}");
    assert!(!found.contains("no endpoint"), "{found}");

    let pem = fs::read_to_string(file(&trusted, "cert.pem")).expect("text");
    let config = Config::new(cluster.endpoints())
        .tls(Tls::new().ca_pem(pem))
        .connect_timeout(PATIENCE)
        .wait_forever();
    let runtime = Runtime::new().expect("a runtime");
    let service = runtime.block_on(Locks::connect(config)).expect("the cluster serves");
    cluster.members()[0].kill().expect("it ends");
    for round in 0..8 {
        let held = runtime.block_on(service.lock("orders/7").into_future()).expect("free");
        for args in [&["who", "orders/7"][..], &["kick", "orders/7", "--yes"]] {
            let (status, said) = run(&trusted, args);
            assert_eq!(status, Some(0), "round {round}: {said}");
        }
        drop(held);
    }
}
