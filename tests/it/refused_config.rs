//! Configurations that cannot work: each is refused with what to write instead, and without a secret in the text.

use std::time::Duration;

use etcd_locked::{Config, Credentials, LockError, Locks, RECOMMENDED_ETCD, Tls, etcd_bugs};

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

fn at(endpoint: &str) -> Config {
    Config::new([endpoint])
}

fn plain() -> Config {
    at("http://a:1")
}

/// Makes a configuration with TLS, so an endpoint without a scheme means `https`.
fn secure(tls: Tls) -> Config {
    Config::new(["a:1", "https://b:1"]).tls(tls)
}

/// Returns the error's text about a configuration.
fn wrong<T>(refused: Result<T, LockError>) -> String {
    match refused.map(drop) {
        Err(LockError::Config { message, .. }) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_cannot_work_is_refused() {
    for (config, message) in [
        (Config::new([""; 0]), "no endpoint"),
        (at("http://me:hunter2@a:1"), "use `user`"),
        (at("http://a:1,http://b:1"), "each one its own"),
        (at("fd00::10"), "in brackets"),
        (at("ftp://a:1"), "scheme"),
        (at("http://a:1 b:1"), "' ' is in it: separate endpoints by `,`"),
        (at("http://a:1;http://b:1"), "';' is in it"),
        (at("http://a:1\nhttp://b:1"), "'\\n' is in it"),
        (at("http://a:1/v3"), "path"),
        (at("http://a:99999"), "65535"),
        (at("http://"), "empty"),
        (Config::new(["http://a:1", "https://b:1"]), "differ in scheme"),
        (plain().prefix(""), "empty"),
        (plain().prefix("a"), "must end in `/`"),
        (plain().prefix("a".repeat(256) + "/"), "longer than 256"),
        (plain().ttl(Duration::from_secs(1)), "from 2s to 300s"),
        (plain().connect_timeout(Duration::ZERO), "connect_timeout"),
        (plain().user("", "hunter2"), "user's name"),
        (plain().max_waiters(0), "at least 1"),
        (
            Config::connect_with(|_| async { unreachable!() }).follow_members(true),
            "follow_members needs",
        ),
        (at("a:1").credentials(async || Ok::<_, String>(Credentials::new())), "need their schemes"),
        (plain().tls(Tls::new()), "leave `tls` out"),
        (secure(Tls::new().ca_pem("hunter2")), "authorities"),
        (secure(Tls::new().identity_pem(CERTIFICATE, "hunter2")), "client key"),
        (secure(Tls::new().identity_pem("hunter2", "")), "client certificate"),
        (
            secure(Tls::new().identity_pem(CERTIFICATE, "BEGIN ENCRYPTED PRIVATE KEY-----")),
            "decrypt it, `openssl pkey",
        ),
        (
            secure(
                Tls::new().identity_pem(CERTIFICATE, "PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED"),
            ),
            "decrypt it, `openssl pkey",
        ),
    ] {
        let wrong = wrong(Locks::connect_lazy(config));
        assert!(wrong.contains(message) && !wrong.contains("hunter2"), "{wrong}");
    }
}

#[test]
fn a_wrong_variable_is_named_and_explained_but_not_shown() {
    for (name, value, accepted) in [
        ("TTL", "15", "`ms`, `s`, `m`, `h`"),
        ("TTL", "1h", "from 2s to 300s"),
        ("WAIT", "never", "`none`, or `forever`"),
        ("CONNECT_TIMEOUT", "soon", "`ms`, `s`, `m`, `h`"),
        ("MAX_WAITERS", "0", "integer from 1"),
        ("FOLLOW_MEMBERS", "yes", "`true` or `false`"),
        ("PREFIX", "locks", "must end in `/`"),
        ("ENDPOINTS", "http://a:1, embedded", "alone"),
        ("ENDPOINTS", "a:1,b:x", "endpoint 2: the port"),
        ("USER", "hunter2", "write `name:password`"),
        ("CACERT", "/no/such/file", "cannot read the file"),
        ("CERT", "/some/file", "key's file"),
    ] {
        let name = format!("ETCD_LOCKED_{name}");
        let wrong = wrong(Config::from_lookup(|variable| match variable {
            variable if variable == name => Some(value.to_owned()),
            "ETCD_LOCKED_ENDPOINTS" => Some("a:2379".to_owned()),
            _ => None,
        }));
        assert!(wrong.starts_with(&format!("`{name}`: ")), "{wrong}");
        assert!(wrong.contains(accepted) && !wrong.contains("hunter2"), "{wrong}");
    }
}

#[test]
fn recommended_versions_are_the_first_without_bugs() {
    let fixed = RECOMMENDED_ETCD.trim_end_matches(" or later").split(", ");
    for (version, before) in fixed.zip(["3.5.32", "3.6.13", "3.7.0"]) {
        assert_eq!(etcd_bugs(version), None);
        assert!(etcd_bugs(before).is_some(), "{before}");
    }
    assert!(etcd_bugs("3.6.0-rc.1").is_some() && etcd_bugs("3.3.27").is_some());
    for unknown in ["", "3.5", "etcd", "3.x.1", "4.0.0"] {
        assert_eq!(etcd_bugs(unknown), None, "{unknown}");
    }
}
