//! Tests of secrets in options and variables: the command line never prints them.

use std::process::Command;

use etcd_locked_devkit::process::text;

/// URL with TLS, without which etcdctl's TLS variables have no effect.
const NOWHERE: &str = "https://127.0.0.1:1";
const PASSWORD: &str = "tiger7secret";

/// Key as a user may paste it, and its secret part.
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
fn no_option_and_no_variable_shows_its_secret() {
    for endpoints in ["http://shop:tiger7secret@127.0.0.1:1", "http://shop:tiger7secret,x@h:1", KEY]
    {
        shows_none(&["ls", &format!("--endpoints={endpoints}")], None);
        shows_none(&["doctor", &format!("--endpoints={endpoints}")], None);
    }
    for secret in [PASSWORD, KEY] {
        for option in ["--user", "--cacert", "--cert", "--key", "--prefix"] {
            shows_none(&["ls", "--endpoints", NOWHERE, &format!("{option}={secret}")], None);
        }
        for name in ["USER", "CACERT", "CERT", "KEY"] {
            for variable in [format!("ETCD_LOCKED_{name}"), format!("ETCDCTL_{name}")] {
                shows_none(&["ls", "--endpoints", NOWHERE], Some((&variable, secret)));
            }
        }
        let file = Some(("ETCD_LOCKED_PASSWORD_FILE", secret));
        shows_none(&["ls", "--endpoints", NOWHERE], file);
    }
}
