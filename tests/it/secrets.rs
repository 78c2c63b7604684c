//! Secrets of a configuration: the tests search errors, log lines, records and `Debug` for passwords and keys.

use etcd_locked::{Config, LockError, Locks, Tls};
use etcd_locked_tests::chain;

use crate::authority::Authority;
use crate::corner::{connect, take};
use crate::limit::{self, within};
use crate::real_only::real_etcd_only;
use crate::shop::{Shop, USER};
use crate::worker::Worker;

const PASSWORD: &str = "tiger7secret";

/// Variables whose values are never shown. Endpoints, prefix and service are shown, as every record shows them.
const SILENT: &str = "_LOCKED_TTL _LOCKED_WAIT _LOCKED_MAX_WAITERS _LOCKED_FOLLOW_MEMBERS _LOCKED_USER \
     _LOCKED_PASSWORD_FILE _LOCKED_CACERT _LOCKED_CERT _LOCKED_KEY _LOCKED_PREFIX CTL_USER CTL_CACERT CTL_CERT CTL_KEY";

/// Variables of a process, with a secret in the wrong one.
type Mistake = Vec<(String, String)>;

/// Returns the secret part of a PEM key: its first line of data.
fn data(key: &str) -> &str {
    key.lines().nth(1).expect("a key of several lines")
}

fn mistakes(host: &str, authority: &Authority) -> (Vec<Mistake>, String) {
    let set = |name: &str, text: &str| (format!("ETCD{name}"), text.to_owned());
    let endpoints = |text: String| set("_LOCKED_ENDPOINTS", &text);
    let plain = || endpoints(format!("http://{host}"));
    let encrypted = || endpoints(format!("https://{host}"));
    let (certificate, key) = authority.issue("client");
    let file = authority.file().display().to_string();
    let mut mistakes = vec![
        vec![plain(), set("_LOCKED_USER", &format!("shop:{PASSWORD}"))],
        vec![plain(), set("CTL_USER", "shop"), set("CTL_PASSWORD", PASSWORD)],
        vec![plain(), set("_LOCKED_USER", &format!(":{PASSWORD}"))],
        // A key, or both texts, instead of a file name.
        vec![endpoints(key.clone())],
        vec![encrypted(), set("_LOCKED_CERT", &file), set("_LOCKED_KEY", &key)],
        vec![
            encrypted(),
            set("_LOCKED_CERT", &format!("{certificate}{key}")),
            set("_LOCKED_KEY", &file),
        ],
    ];
    for endpoint in [
        format!("http://shop:{PASSWORD}@{host}"),
        format!("http://{host},shop:{PASSWORD}@x@{host}"),
        format!("etcd://shop:{PASSWORD}@{host}"),
        format!("http://shop:{PASSWORD},x@{host}"),
        format!("http://shop:{PASSWORD}"),
        format!("http://shop:{PASSWORD}@{host},embedded"),
    ] {
        mistakes.push(vec![endpoints(endpoint)]);
    }
    for variable in SILENT.split_whitespace() {
        for secret in [PASSWORD, &key] {
            mistakes.push(vec![encrypted(), set(variable, secret)]);
        }
    }
    (mistakes, data(&key).to_owned())
}

/// Makes a process request a lock. Returns whether it got the lock, and all lines until then, including its log at level trace.
async fn asked(worker: &mut Worker) -> (bool, Vec<String>) {
    // The answer to this command ends an answer of several lines.
    const MARK: &str = "failed command ";
    worker.send("lock orders/7");
    worker.send("mark");
    let mut lines = Vec::new();
    loop {
        let line = worker.line().await;
        if line.starts_with(MARK) {
            let answers = |it: &String| it.starts_with("locked ") || it.starts_with("failed ");
            assert!(lines.iter().any(answers));
            return (lines.iter().any(|it| it.starts_with("locked ")), lines);
        }
        lines.push(line);
    }
}

fn start(environment: Mistake) -> Worker {
    let logs = [("WORKER_LOGS".to_owned(), "trace".to_owned())];
    Worker::start(environment.into_iter().chain(logs))
}

#[limit::test]
async fn no_mistake_in_a_variable_shows_its_secret() {
    real_etcd_only!("an embedded etcd has no users");
    let shop = Shop::start("another").await;
    let authority = Authority::new();
    let (mistakes, key) = mistakes(&shop.etcd.address(), &authority);
    for (nth, mistake) in mistakes.into_iter().enumerate() {
        let (locked, lines) = asked(&mut start(mistake)).await;
        assert!(!locked, "mistake {nth}");
        for line in &lines {
            assert!(!line.contains(PASSWORD) && !line.contains(&key), "mistake {nth}: {line}");
        }
    }
}

#[limit::test]
async fn a_password_in_use_is_in_no_log_line_and_no_record() {
    real_etcd_only!("an embedded etcd has no users");
    let mut shop = Shop::start(PASSWORD).await;
    let mut worker = start(vec![
        ("ETCD_LOCKED_ENDPOINTS".to_owned(), shop.etcd.endpoint()),
        ("ETCD_LOCKED_USER".to_owned(), format!("shop:{PASSWORD}")),
    ]);
    let (locked, mut lines) = asked(&mut worker).await;
    assert!(locked);
    worker.asked("work till", "held").await;
    let all = etcd_client::GetOptions::new().with_all_keys();
    let all = shop.root.get("", Some(all)).await.expect("root reads all");
    assert!(all.kvs().len() >= 2, "a contender and a session key");
    lines.extend(all.kvs().iter().map(|kv| String::from_utf8_lossy(kv.value()).into_owned()));
    shop.change_password("another").await;
    let (locked, refused) = asked(&mut worker).await;
    assert!(!locked);
    lines.extend(refused);
    assert!(lines.iter().any(|line| line.starts_with("logged ")), "no log");
    for line in &lines {
        assert!(!line.contains(PASSWORD), "{line}");
    }
}

#[limit::test]
async fn debug_of_what_knows_a_secret_does_not_show_it() {
    real_etcd_only!("an embedded etcd has no users");
    let mut shop = Shop::start(PASSWORD).await;
    let (certificate, key) = Authority::new().issue("client");
    let host = shop.etcd.address();
    let mut texts = Vec::new();
    let mut refused = |error: LockError| {
        texts.extend([format!("{error:?}"), chain(&error)]);
    };

    let tls = Tls::new().identity_pem(certificate.clone(), key.clone());
    let exchanged = Tls::new().identity_pem(key.clone(), certificate);
    let encrypted = || Config::new([format!("https://{host}")]);
    // A user in an endpoint, even in a list that a comma in the password splits; a key instead of a certificate or a CA.
    let with_user = Config::new([format!("https://shop:{PASSWORD}@{host}")]);
    let divided = [format!("https://shop:{PASSWORD}"), format!("x@{host}")];
    let mut shown = vec![format!("{tls:?}")];
    for config in [
        with_user.user("shop", PASSWORD).tls(tls),
        Config::new(divided),
        encrypted().tls(exchanged),
        encrypted().tls(Tls::new().ca_pem(key.clone())),
    ] {
        shown.push(format!("{config:?}"));
        refused(Locks::connect(config).await.map(drop).expect_err("a mistake"));
    }

    let config = shop.config(PASSWORD);
    shown.push(format!("{config:?}"));
    let locks = connect(config).await;
    let held = take("a free name", locks.lock("orders/7")).await;
    shown.push(format!("{locks:?} {:?} {held:?}", locks.lock("orders/7")));
    let tried = within("a try", locks.lock("orders/7").try_once()).await;
    refused(tried.map(drop).expect_err("held"));
    let revoked = shop.root.user_revoke_role(USER, USER).await;
    revoked.expect("the role revoked");
    let denied = within("a refusal", locks.lock("orders/8")).await;
    refused(denied.map(drop).expect_err("denied"));

    for text in texts.iter().chain(&shown) {
        assert!(!text.contains(PASSWORD) && !text.contains(data(&key)), "{text}");
    }
}
