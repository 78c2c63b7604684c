//! Secrets of a configuration: passwords and keys. Errors, log lines, records and `Debug` are searched for them.

use etcd_locked::{Config, LockError, Locks, Tls};

use crate::authority::Authority;
use crate::corner::{connect, take};
use crate::etcd::Etcd;
use crate::limit::{self, within};
use crate::real_only::real_etcd_only;
use crate::shop::{Shop, USER};
use crate::worker::Worker;

const PASSWORD: &str = "tiger7secret";

/// Variables of which none is shown, whatever stands in them. Endpoints, prefix and service are shown, as every record shows them.
const SILENT: [&str; 14] = [
    "ETCD_LOCKED_TTL",
    "ETCD_LOCKED_WAIT",
    "ETCD_LOCKED_MAX_WAITERS",
    "ETCD_LOCKED_FOLLOW_MEMBERS",
    "ETCD_LOCKED_USER",
    "ETCD_LOCKED_PASSWORD_FILE",
    "ETCD_LOCKED_CACERT",
    "ETCD_LOCKED_CERT",
    "ETCD_LOCKED_KEY",
    "ETCD_LOCKED_PREFIX", // refused without a `/` at its end
    "ETCDCTL_USER",
    "ETCDCTL_CACERT",
    "ETCDCTL_CERT",
    "ETCDCTL_KEY",
];

/// A process's environment with a mistake in it.
struct Mistake {
    what: String,
    environment: Vec<(&'static str, String)>,
    /// What nothing may show.
    secret: String,
}

/// A key in PEM, and the part of it that is secret.
struct Key {
    text: String,
    data: String,
}

impl Key {
    fn new(text: String) -> Key {
        // Its first line of data: PEM's own lines are no secret.
        let data = text.lines().nth(1).expect("a key of several lines");
        Key { data: data.to_owned(), text }
    }
}

fn mistakes(etcd: &Etcd, authority: &Authority) -> Vec<Mistake> {
    let endpoint = || ("ETCD_LOCKED_ENDPOINTS", etcd.endpoint());
    let endpoints = |text: String| vec![("ETCD_LOCKED_ENDPOINTS", text)];
    let host = etcd.address();
    let encrypted = || ("ETCD_LOCKED_ENDPOINTS", format!("https://{host}"));
    let (certificate, key) = authority.issue("client");
    let key = Key::new(key);
    let file = authority.file().display().to_string();
    let of_password = |what: &str, environment| Mistake {
        what: what.to_owned(),
        environment,
        secret: PASSWORD.to_owned(),
    };
    let of_key = |what: &str, environment| Mistake {
        what: what.to_owned(),
        environment,
        secret: key.data.clone(),
    };
    let mut mistakes = vec![
        of_password(
            "a wrong password",
            vec![endpoint(), ("ETCD_LOCKED_USER", format!("shop:{PASSWORD}"))],
        ),
        of_password(
            "a wrong password in etcdctl's variable",
            vec![
                endpoint(),
                ("ETCDCTL_USER", "shop".to_owned()),
                ("ETCDCTL_PASSWORD", PASSWORD.to_owned()),
            ],
        ),
        of_password(
            "a password without its user's name",
            vec![endpoint(), ("ETCD_LOCKED_USER", format!(":{PASSWORD}"))],
        ),
        of_password(
            "a password in an endpoint",
            endpoints(format!("http://shop:{PASSWORD}@{host}")),
        ),
        of_password(
            "a password with an `@` in the second endpoint, without a scheme",
            endpoints(format!("http://{host},shop:{PASSWORD}@x@{host}")),
        ),
        of_password(
            "a password in an endpoint of an unknown scheme",
            endpoints(format!("etcd://shop:{PASSWORD}@{host}")),
        ),
        of_password(
            "a password with a comma in an endpoint",
            endpoints(format!("http://shop:{PASSWORD},x@{host}")),
        ),
        of_password(
            "a password in an endpoint without a host",
            endpoints(format!("http://shop:{PASSWORD}")),
        ),
        of_password(
            "a password in an endpoint, next to `embedded`",
            endpoints(format!("http://shop:{PASSWORD}@{host},embedded")),
        ),
        of_key("the key's text in place of endpoints", endpoints(key.text.clone())),
        of_key(
            "the key's text in place of its file's name",
            vec![
                encrypted(),
                ("ETCD_LOCKED_CERT", file.clone()),
                ("ETCD_LOCKED_KEY", key.text.clone()),
            ],
        ),
        of_key(
            "the certificate's and the key's text in place of the certificate's file name",
            vec![
                encrypted(),
                ("ETCD_LOCKED_CERT", format!("{certificate}{}", key.text)),
                ("ETCD_LOCKED_KEY", file),
            ],
        ),
    ];
    for variable in SILENT {
        mistakes.push(of_password(
            &format!("a password in `{variable}`"),
            vec![encrypted(), (variable, PASSWORD.to_owned())],
        ));
        mistakes.push(of_key(
            &format!("the key's text in `{variable}`"),
            vec![encrypted(), (variable, key.text.clone())],
        ));
    }
    mistakes
}

/// Asks a process for a lock. Returns all lines of it up to its answer, its log at level trace among them.
async fn asked(worker: &mut Worker) -> Vec<String> {
    // The answer to this ends an answer of several lines.
    const MARK: &str = "failed command ";
    worker.send("lock orders/7");
    worker.send("mark");
    let mut lines = Vec::new();
    loop {
        let line = worker.line().await;
        if line.starts_with(MARK) {
            return lines;
        }
        lines.push(line);
    }
}

/// Returns the answer's first line.
fn answer(lines: &[String]) -> &str {
    let answers = ["failed ", "locked "];
    let is_answer = |line: &&String| answers.iter().any(|it| line.starts_with(it));
    lines.iter().find(is_answer).expect("an answer")
}

fn start(environment: Vec<(&'static str, String)>) -> Worker {
    let logs = [("WORKER_LOGS", "trace".to_owned())];
    Worker::start(environment.into_iter().chain(logs))
}

#[limit::test]
async fn no_mistake_in_a_variable_shows_its_secret() {
    real_etcd_only!("an embedded etcd has no users");
    let shop = Shop::start("another").await;
    let authority = Authority::new();
    for mistake in mistakes(&shop.etcd, &authority) {
        let mut worker = start(mistake.environment);
        let lines = asked(&mut worker).await;
        let answer = answer(&lines);
        assert!(answer.starts_with("failed "), "{}: {answer}", mistake.what);
        for line in &lines {
            assert!(!line.contains(&mistake.secret), "{}: {line}", mistake.what);
        }
    }
}

#[limit::test]
async fn a_password_in_use_is_in_no_log_line_and_no_record() {
    real_etcd_only!("an embedded etcd has no users");
    let mut shop = Shop::start(PASSWORD).await;
    let environment = vec![
        ("ETCD_LOCKED_ENDPOINTS", shop.etcd.endpoint()),
        ("ETCD_LOCKED_USER", format!("shop:{PASSWORD}")),
    ];
    let mut worker = start(environment);
    let mut lines = asked(&mut worker).await;
    assert!(answer(&lines).starts_with("locked "));
    worker.asked("work till", "held").await;
    let all = etcd_client::GetOptions::new().with_all_keys();
    let all = shop.root.get("", Some(all)).await.expect("root reads all");
    assert!(all.kvs().len() >= 2, "a contender and a session key");
    for kv in all.kvs() {
        let record = String::from_utf8_lossy(kv.value());
        assert!(!record.contains(PASSWORD), "{record}");
    }
    shop.change_password("another").await;
    let refused = asked(&mut worker).await;
    assert!(answer(&refused).starts_with("failed "));
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
    let Key { text: key, data } = Key::new(key);
    let host = shop.etcd.address();
    let mut texts = Vec::new();

    let tls = Tls::new().identity_pem(certificate.clone(), key.clone());
    texts.push(format!("{tls:?}"));
    let config = Config::new([format!("https://shop:{PASSWORD}@{host}")]);
    let config = config.user("shop", PASSWORD).tls(tls);
    texts.push(format!("{config:?}"));
    let refused = |error: LockError| [format!("{error:?}"), error.to_string()];
    let error = Locks::connect(config).await.map(drop).expect_err("a user in an endpoint");
    texts.extend(refused(error));
    let exchanged = Tls::new().identity_pem(key.clone(), certificate.clone());
    let config = Config::new([format!("https://{host}")]).tls(exchanged);
    let error = Locks::connect(config).await.map(drop).expect_err("a key for a certificate");
    texts.extend(refused(error));
    let authorities = Config::new([format!("https://{host}")]);
    let authorities = authorities.tls(Tls::new().ca_pem(key));
    let error = Locks::connect(authorities).await.map(drop).expect_err("a key for authorities");
    texts.extend(refused(error));

    // A list that a comma of the password divides.
    let divided = [format!("https://shop:{PASSWORD}"), format!("x@{host}")];
    texts.push(format!("{:?}", Config::new(divided.clone())));
    let error = Locks::connect(Config::new(divided)).await.map(drop);
    texts.extend(refused(error.expect_err("a user in an endpoint")));

    let config = shop.config(PASSWORD);
    texts.push(format!("{config:?}"));
    let locks = connect(config).await;
    texts.push(format!("{locks:?}"));
    texts.push(format!("{:?}", locks.lock("orders/7")));
    let held = take("a free name", locks.lock("orders/7")).await;
    texts.push(format!("{held:?}"));
    let tried = within("a try", locks.lock("orders/7").try_once()).await;
    texts.extend(refused(tried.map(drop).expect_err("held")));
    let revoked = shop.root.user_revoke_role(USER, USER).await;
    revoked.expect("the role revoked");
    let denied = within("a refusal", locks.lock("orders/8")).await;
    texts.extend(refused(denied.map(drop).expect_err("denied")));

    for text in &texts {
        assert!(!text.contains(PASSWORD) && !text.contains(&data), "{text}");
    }
}
