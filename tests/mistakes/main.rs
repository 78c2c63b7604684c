//! Compile errors that a user sees after a mistake: one file for each kind of mistake, named for it.
//!
//! `TRYBUILD=overwrite cargo test -p etcd-locked-mistakes` writes the `.stderr` files; read them as a user would.

use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Compiler of the messages in `ui`. Others word and number them differently. CI installs it.
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

/// rustc would link two versions into one binary, which would then have two engines.
#[test]
fn second_version_of_the_runtime_is_refused() {
    const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("two-versions");
    let package = |name: &str, keys: &str| {
        let home = folder.join(name);
        fs::create_dir_all(home.join("src")).expect("a folder");
        for (file, text) in [("src/lib.rs", ""), ("build.rs", "fn main() {}"), ("Cargo.toml", keys)]
        {
            fs::write(home.join(file), text).expect("a file");
        }
        home
    };
    package("old", "package = { name = 'etcd-locked', version = '0.0.9', links = 'etcd-locked' }");
    let dependencies = format!(
        "package.name = 'shop'\nworkspace = {{}}\n[dependencies]\n\
         etcd-locked.path = '{ROOT}/runtime'\nold = {{ package = 'etcd-locked', path = '../old' }}"
    );
    let shop = package("shop", &dependencies);
    fs::copy(format!("{ROOT}/Cargo.lock"), shop.join("Cargo.lock")).expect("versions at hand");
    let cargo = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--format-version=1"])
        .current_dir(shop)
        .output();
    let said = String::from_utf8(cargo.expect("cargo runs").stderr).expect("a text");
    assert!(said.contains("only one package uses the `links = \"etcd-locked\"` value"), "{said}");
}
