//! Secrets in options and variables: the command line prints none.

use std::process::Command;

use etcd_locked_devkit::process::text;

/// A port without etcd, which wants TLS.
const NOWHERE: &str = "https://127.0.0.1:1";
const PASSWORD: &str = "tiger7secret";

/// A key as someone may paste it, and the part that is secret.
const KEY: &str =
    "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA\n-----END PRIVATE KEY-----\n";
const DATA: &str = "MC4CAQAwBQYDK2VwBCIEIA";

/// Asserts that a command against a port without etcd fails, and prints no secret.
fn shows_none(command: &str, options: &[(&str, &str)], variable: Option<(&str, &str)>) {
    let mut run = Command::new(env!("CARGO_BIN_EXE_etcd-locked"));
    run.env_clear().arg(command).envs(variable);
    for (option, value) in options {
        run.arg(format!("{option}={value}"));
    }
    let output = run.output().expect("the command line runs");
    assert!(!output.status.success(), "{options:?} {variable:?}");
    let printed = text(&output);
    assert!(!printed.is_empty(), "no error");
    assert!(!printed.contains(PASSWORD) && !printed.contains(DATA), "{printed}");
}

#[test]
fn no_option_shows_its_secret() {
    let endpoints = [
        format!("http://shop:{PASSWORD}@127.0.0.1:1"),
        format!("http://shop:{PASSWORD},x@127.0.0.1:1"),
        format!("http://shop:{PASSWORD}"),
        KEY.to_owned(),
    ];
    for command in ["ls", "doctor"] {
        for endpoints in &endpoints {
            shows_none(command, &[("--endpoints", endpoints)], None);
        }
        for option in ["--user", "--cacert", "--cert", "--key", "--prefix"] {
            for secret in [PASSWORD, KEY] {
                shows_none(command, &[("--endpoints", NOWHERE), (option, secret)], None);
            }
        }
    }
}

#[test]
fn no_variable_shows_its_secret() {
    for variable in [
        "ETCD_LOCKED_USER",
        "ETCD_LOCKED_PASSWORD_FILE",
        "ETCD_LOCKED_CACERT",
        "ETCD_LOCKED_CERT",
        "ETCD_LOCKED_KEY",
        "ETCDCTL_USER",
        "ETCDCTL_CACERT",
        "ETCDCTL_CERT",
        "ETCDCTL_KEY",
    ] {
        for secret in [PASSWORD, KEY] {
            shows_none("ls", &[("--endpoints", NOWHERE)], Some((variable, secret)));
        }
    }
}
