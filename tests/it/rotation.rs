//! Rotation of credentials while locks are held, on disk or in a closure: without a restart, and without a loss.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcd_locked::{Config, Credentials};
use etcd_locked_devkit::Proxy;

use crate::authority::{Authority, ClientFiles};
use crate::corner::{connect, pass, take};
use crate::etcd::Etcd;
use crate::limit;
use crate::real_only::real_etcd_only;
use crate::shop::{Shop, USER};
use crate::worker::Worker;

/// Passwords of a user, one after another.
const PASSWORDS: [&str; 3] = ["lion1first", "lion2second", "lion3third"];

const DAY: Duration = Duration::from_secs(86_400);

/// Starts a process that logs warnings.
fn process(environment: impl IntoIterator<Item = (&'static str, String)>) -> Worker {
    Worker::start(environment.into_iter().chain([("WORKER_LOGS", "warn".to_owned())]))
}

/// Starts an etcd that requires certificates, and a process with this certificate, which reaches it through a proxy.
async fn scene(authority: &Authority, own: (String, String)) -> (Etcd, Proxy, ClientFiles, Worker) {
    let etcd = Etcd::start_with_client_certificates(authority).await;
    let proxy = Proxy::start(etcd.address()).expect("a proxy");
    let files = ClientFiles::of(authority, &own);
    let endpoint = ("ETCD_LOCKED_ENDPOINTS", proxy.endpoint().replace("http://", "https://"));
    let worker = process(files.environment().into_iter().chain([endpoint]));
    (etcd, proxy, files, worker)
}

#[limit::test]
async fn rotation_of_all_certificates_costs_no_lock() {
    real_etcd_only!("an embedded etcd has no certificates");
    let (authority, successor) = (Authority::new(), Authority::new());
    let own = authority.issue("client");
    let (mut etcd, proxy, files, mut worker) = scene(&authority, own).await;
    worker.asked("work till", "held").await;

    let (certificate, key) = successor.issue("client");
    files.begin_to_replace(&certificate);
    proxy.reset_all();
    worker.asked("lock orders/1", "locked").await;
    assert_eq!(worker.logged("credentials.unreadable"), 1);

    files.replace(&successor, &certificate, &key);
    authority.hand_over(&successor);
    etcd.restart().await;
    worker.asked("lock orders/2", "locked").await;
    worker.asked("done till", "released").await;
    assert_eq!(worker.logged("certificate.ends"), 0);
}

#[limit::test]
async fn password_that_changes_in_its_file_costs_no_lock() {
    real_etcd_only!("an embedded etcd has no users");
    let mut shop = Shop::start(PASSWORDS[0]).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("password");
    let write = |password: &str| std::fs::write(&file, format!("{password}\n")).expect("the file");
    write(PASSWORDS[0]);
    let environment = [
        ("ETCD_LOCKED_ENDPOINTS", shop.etcd.endpoint()),
        ("ETCD_LOCKED_USER", USER.to_owned()),
        ("ETCD_LOCKED_PASSWORD_FILE", file.display().to_string()),
    ];
    let mut worker = process(environment);
    worker.asked("work till", "held").await;

    let changed = shop.root.user_change_password(USER, PASSWORDS[1]).await;
    changed.expect("another password");
    write(PASSWORDS[1]);
    worker.asked("lock orders/1", "locked").await;

    shop.change_password(PASSWORDS[2]).await;
    let refused = worker.asked("lock orders/2", "failed").await;
    assert!(refused.contains("Backend"), "{refused}");
    std::fs::remove_file(&file).expect("the file");
    // The first may use a connection that was already being opened to write the record of a held lock. The second reads the files.
    for _ in 0..2 {
        let refused = worker.asked("lock orders/2", "failed").await;
        assert!(refused.contains("Backend"), "{refused}");
    }
    assert_eq!(worker.logged("credentials.unreadable"), 1);
    write(PASSWORDS[2]);
    worker.asked("lock orders/2", "locked").await;
    worker.asked("done till", "released").await;
    let leaks = |line: &&String| PASSWORDS.iter().any(|password| line.contains(password));
    assert_eq!(worker.output.iter().find(leaks), None);
}

#[limit::test]
async fn end_of_a_certificate_is_warned_of_once_a_day() {
    real_etcd_only!("an embedded etcd has no certificates");
    let authority = Authority::new();
    let own = authority.issue_ending("client", 10 * DAY);
    let (_etcd, proxy, files, mut worker) = scene(&authority, own).await;
    worker.asked("lock orders/1", "locked").await;
    assert_eq!(worker.logged("certificate.ends"), 1);
    proxy.reset_all();
    worker.asked("lock orders/2", "locked").await;
    assert_eq!(worker.logged("certificate.ends"), 1, "{:?}", worker.output);

    let (certificate, key) = authority.issue_ending("client", 11 * DAY);
    files.replace(&authority, &certificate, &key);
    proxy.reset_all();
    worker.asked("lock orders/3", "locked").await;
    assert_eq!(worker.logged("certificate.ends"), 2, "of another one");
}

#[limit::test]
async fn closure_is_asked_again_when_etcd_refuses() {
    real_etcd_only!("an embedded etcd has no users");
    let mut shop = Shop::start(PASSWORDS[0]).await;
    let password = Arc::new(Mutex::new(Some(PASSWORDS[0])));
    let provided = Arc::clone(&password);
    let config = Config::new([shop.etcd.endpoint()]).credentials(move || {
        let password = *provided.lock().expect("no panic");
        async move {
            let password = password.ok_or_else(|| io::Error::other("the vault is closed"))?;
            Ok::<_, io::Error>(Credentials::new().user(USER, password))
        }
    });
    let locks = connect(config).await;
    let held = take("a free name", locks.lock("reports/today")).await;
    *password.lock().expect("no panic") = Some(PASSWORDS[1]);
    shop.change_password(PASSWORDS[1]).await;
    pass("a lock", locks.lock("orders/1")).await;

    *password.lock().expect("no panic") = None;
    shop.etcd.restart().await;
    pass("a lock", locks.lock("orders/2")).await;
    assert!(held.is_held());
    held.release().await.expect("it was held");
}
