//! Secrets of a configuration: passwords and keys. Errors, log lines, records and `Debug` are searched for them.

use etcd_locked::{Config, LockError, Locks, Tls};

use crate::authority::Authority;
use crate::corner::{connect, take};
use crate::drill::Drill;
use crate::etcd::Etcd;
use crate::limit::{run, within};
use crate::real_only::real_etcd_only;
use crate::worker::Worker;

const PASSWORD: &str = "tiger7secret";

/// The mistakes whose error shows the secret: defects, each to be taken out here when it is mended.
const SHOWN: [&str; 5] = [
    "the key's text in place of its file's name",
    "the key's text in place of its file's name, and no certificate",
    "the certificate's and the key's text in place of the certificate's file name",
    "a password with a comma in an endpoint",
    "a password in an endpoint, next to `embedded`",
];

/// A process's environment with a mistake in it.
struct Mistake {
    what: &'static str,
    environment: Vec<(&'static str, String)>,
    /// What nothing may show.
    secret: String,
}

fn mistakes(etcd: &Etcd, authority: &Authority) -> Vec<Mistake> {
    let endpoint = || ("ETCD_LOCKED_ENDPOINTS", etcd.endpoint());
    let endpoints = |text: String| vec![("ETCD_LOCKED_ENDPOINTS", text)];
    let encrypted = || {
        (
            "ETCD_LOCKED_ENDPOINTS",
            format!("https://{}", etcd.address()),
        )
    };
    let password = |what, environment| Mistake {
        what,
        environment,
        secret: PASSWORD.to_owned(),
    };
    let host = etcd.address();
    let (certificate, key) = authority.issue("client");
    let file = authority.file().display().to_string();
    // Its first line of data: PEM's own lines are no secret.
    let data = key
        .lines()
        .nth(1)
        .expect("a key of several lines")
        .to_owned();
    let of_key = |what, environment| Mistake {
        what,
        environment,
        secret: data.clone(),
    };
    vec![
        password(
            "a wrong password",
            vec![endpoint(), ("ETCD_LOCKED_USER", format!("shop:{PASSWORD}"))],
        ),
        password(
            "a wrong password in etcdctl's variable",
            vec![
                endpoint(),
                ("ETCDCTL_USER", "shop".to_owned()),
                ("ETCDCTL_PASSWORD", PASSWORD.to_owned()),
            ],
        ),
        password(
            "a password without its user",
            vec![endpoint(), ("ETCD_LOCKED_USER", PASSWORD.to_owned())],
        ),
        password(
            "a password without its user's name",
            vec![endpoint(), ("ETCD_LOCKED_USER", format!(":{PASSWORD}"))],
        ),
        password(
            "a password in an endpoint",
            endpoints(format!("http://shop:{PASSWORD}@{host}")),
        ),
        password(
            "a password with an `@` in the second endpoint, without a scheme",
            endpoints(format!("http://{host},shop:{PASSWORD}@x@{host}")),
        ),
        password(
            "a password in an endpoint of an unknown scheme",
            endpoints(format!("etcd://shop:{PASSWORD}@{host}")),
        ),
        password(
            "a password with a comma in an endpoint",
            endpoints(format!("http://shop:{PASSWORD},x@{host}")),
        ),
        password(
            "a password in an endpoint, next to `embedded`",
            endpoints(format!("http://shop:{PASSWORD}@{host},embedded")),
        ),
        of_key(
            "the key's text in place of its file's name",
            vec![
                encrypted(),
                ("ETCD_LOCKED_CERT", file.clone()),
                ("ETCD_LOCKED_KEY", key.clone()),
            ],
        ),
        of_key(
            "the key's text in place of its file's name, and no certificate",
            vec![encrypted(), ("ETCD_LOCKED_KEY", key.clone())],
        ),
        of_key(
            "the certificate's and the key's text in place of the certificate's file name",
            vec![
                encrypted(),
                ("ETCD_LOCKED_CERT", format!("{certificate}{key}")),
                ("ETCD_LOCKED_KEY", file),
            ],
        ),
    ]
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

fn start(environment: Vec<(&'static str, String)>, drill: &Drill) -> Worker {
    let logs = [("WORKER_LOGS", "trace".to_owned())];
    Worker::start(
        environment
            .into_iter()
            .chain(logs)
            .chain(drill.environment()),
    )
}

/// Starts an etcd whose user `shop` has this password.
async fn server(password: &str) -> Etcd {
    let etcd = Etcd::start().await;
    etcd.enable_auth("shop", password, &["locks/", "locks%s/"])
        .await;
    etcd
}

#[test]
fn mistakes_about_secrets_show_none_or_are_known_to() {
    real_etcd_only!();
    run(async {
        let mut drill = Drill::begin("passwords and keys where they do not belong");
        let etcd = server("another").await;
        let mut shown = Vec::new();
        let authority = Authority::new();
        for mistake in mistakes(&etcd, &authority) {
            let mut worker = start(mistake.environment, &drill);
            let lines = asked(&mut worker).await;
            let answer = answer(&lines);
            assert!(answer.starts_with("failed "), "{}: {answer}", mistake.what);
            let shows = lines.iter().any(|line| line.contains(&mistake.secret));
            let verdict = match shows {
                true => "SHOWN",
                false => "not shown",
            };
            let (_, text) = answer.split_once("orders/7 ").unwrap_or(("", answer));
            drill.got_saying(&format!("{}: {verdict}", mistake.what), text);
            shown.extend(shows.then_some(mistake.what));
        }
        shown.sort_unstable();
        let mut known = SHOWN;
        known.sort_unstable();
        assert_eq!(shown, known);
        drill.end();
    });
}

#[test]
fn a_password_in_use_is_in_no_log_line_and_no_record() {
    real_etcd_only!();
    run(async {
        let mut drill = Drill::begin(
            "a process that logs at level trace logs in, holds a lock, and is refused by a changed password",
        );
        let mut etcd = server(PASSWORD).await;
        let environment = vec![
            ("ETCD_LOCKED_ENDPOINTS", etcd.endpoint()),
            ("ETCD_LOCKED_USER", format!("shop:{PASSWORD}")),
        ];
        let mut worker = start(environment, &drill);
        let mut lines = asked(&mut worker).await;
        assert!(answer(&lines).starts_with("locked "));
        worker.send("work till");
        worker.says("held").await;
        let mut root = etcd.client_as(Some(("root", "root"))).await;
        let all = etcd_client::GetOptions::new().with_all_keys();
        let all = root.get("", Some(all)).await.expect("root reads all");
        assert!(all.kvs().len() >= 2, "a contender and a session key");
        for kv in all.kvs() {
            let record = String::from_utf8_lossy(kv.value());
            assert!(!record.contains(PASSWORD), "{record}");
        }
        drill.got(format!(
            "{} keys with their records: not shown",
            all.kvs().len()
        ));
        root.user_change_password("shop", "another")
            .await
            .expect("another password");
        etcd.restart().await; // tokens that were granted before are not valid any more
        let refused = asked(&mut worker).await;
        assert!(answer(&refused).starts_with("failed "));
        lines.extend(refused);
        assert!(
            lines.iter().any(|line| line.starts_with("logged ")),
            "no log"
        );
        for line in &lines {
            assert!(!line.contains(PASSWORD), "{line}");
        }
        drill.got("all log lines and errors: not shown");
        drill.end();
    });
}

#[test]
fn debug_of_what_knows_a_secret_does_not_show_it() {
    real_etcd_only!();
    run(async {
        let mut drill = Drill::begin(
            "`Debug` of configurations, engines, calls, guards and errors that know a password or a key",
        );
        let etcd = server(PASSWORD).await;
        let (certificate, key) = Authority::new().issue("client");
        let data = key
            .lines()
            .nth(1)
            .expect("a key of several lines")
            .to_owned();
        let mut texts = Vec::new();

        let tls = Tls::new().identity_pem(certificate.clone(), key.clone());
        texts.push(format!("{tls:?}"));
        let config = Config::new([format!("https://shop:{PASSWORD}@{}", etcd.address())]);
        let config = config.user("shop", PASSWORD).tls(tls);
        texts.push(format!("{config:?}"));
        let refused = |error: LockError| [format!("{error:?}"), error.to_string()];
        let error = Locks::connect(config)
            .await
            .map(drop)
            .expect_err("a user in an endpoint");
        texts.extend(refused(error));
        let exchanged = Tls::new().identity_pem(key.clone(), certificate.clone());
        let config = Config::new([format!("https://{}", etcd.address())]).tls(exchanged);
        let error = Locks::connect(config)
            .await
            .map(drop)
            .expect_err("a key for a certificate");
        texts.extend(refused(error));
        let authorities = Config::new([format!("https://{}", etcd.address())]);
        let authorities = authorities.tls(Tls::new().ca_pem(key));
        let error = Locks::connect(authorities)
            .await
            .map(drop)
            .expect_err("a key for authorities");
        texts.extend(refused(error));

        let config = Config::new([etcd.endpoint()]).user("shop", PASSWORD);
        texts.push(format!("{config:?}"));
        let locks = connect(config).await;
        texts.push(format!("{locks:?}"));
        texts.push(format!("{:?}", locks.lock("orders/7")));
        let held = take("a free name", locks.lock("orders/7")).await;
        texts.push(format!("{held:?}"));
        let tried = within("a try", locks.lock("orders/7").try_once()).await;
        texts.extend(refused(tried.map(drop).expect_err("held")));
        let mut root = etcd.client_as(Some(("root", "root"))).await;
        root.user_revoke_role("shop", "shop")
            .await
            .expect("the role revoked");
        let denied = within("a refusal", locks.lock("orders/8")).await;
        texts.extend(refused(denied.map(drop).expect_err("denied")));

        for text in &texts {
            assert!(!text.contains(PASSWORD) && !text.contains(&data), "{text}");
        }
        drill.got(format!("{} texts: not shown", texts.len()));
        drill.end();
    });
}
