//! Compile errors that a user sees after a mistake: one file for each kind of mistake, named for it.
//!
//! `TRYBUILD=overwrite cargo test -p etcd-locked-mistakes` writes the `.stderr` files; read them as a user would.

use std::env;
use std::io::{self, Write};
use std::process::Command;

/// The compiler of the messages in `ui`: others word and number them differently. CI installs it.
const COMPILER: &str = "rustc 1.95.";

#[test]
fn every_mistake_has_its_own_error() {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output();
    let version = String::from_utf8(version.expect("rustc runs").stdout).expect("a version");
    if !version.starts_with(COMPILER) && env::var_os("CI").is_none() {
        let _ =
            writeln!(io::stdout(), "test ui ... left out: the messages are those of {COMPILER}x");
        return;
    }
    trybuild::TestCases::new().compile_fail("ui/*.rs");
}
