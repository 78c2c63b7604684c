//! Secrets in options and variables: the command line prints none.

use std::process::Command;

use etcd_locked_devkit::process::text;

const NOWHERE: &str = "https://127.0.0.1:1";
const PASSWORD: &str = "tiger7secret";

/// A key as someone may paste it, and the part that is secret.
const KEY: &str =
    "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA\n-----END PRIVATE KEY-----\n";
const DATA: &str = "MC4CAQAwBQYDK2VwBCIEIA";

/// Asserts that a command with these arguments, or with this variable, fails, and prints no secret.
fn shows_none(args: &[&str], variable: Option<(&str, &str)>) {
    let mut run = Command::new(env!("CARGO_BIN_EXE_etcd-locked"));
    let output = run.env_clear().args(args).envs(variable).output();
    let output = output.expect("the command line runs");
    assert!(!output.status.success(), "{args:?} {variable:?}");
    let printed = text(&output);
    assert!(!printed.is_empty(), "no error");
    assert!(!printed.contains(PASSWORD) && !printed.contains(DATA), "{printed}");
}

#[test]
fn no_option_shows_its_secret() {
    let endpoints = ["http://shop:tiger7secret@127.0.0.1:1", "http://shop:tiger7secret,x@h:1", KEY];
    for command in ["ls", "doctor"] {
        for endpoints in endpoints {
            shows_none(&[command, &format!("--endpoints={endpoints}")], None);
        }
        for option in ["--user", "--cacert", "--cert", "--key", "--prefix"] {
            for secret in [PASSWORD, KEY] {
                let option = format!("{option}={secret}");
                shows_none(&[command, "--endpoints", NOWHERE, &option], None);
            }
        }
    }
}

#[test]
fn no_variable_shows_its_secret() {
    for prefix in ["ETCD_LOCKED_", "ETCDCTL_"] {
        for name in ["USER", "PASSWORD_FILE", "CACERT", "CERT", "KEY"] {
            for secret in [PASSWORD, KEY] {
                let variable = format!("{prefix}{name}");
                if variable != "ETCDCTL_PASSWORD_FILE" {
                    shows_none(&["ls", "--endpoints", NOWHERE], Some((&variable, secret)));
                }
            }
        }
    }
}
