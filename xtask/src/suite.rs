//! `cargo xtask test`: runs the whole test suite on every available etcd, the embedded one included.

use std::env;
use std::process::Command;

use crate::etcd::{CURRENT, Etcd};
use crate::options::Asked;
use crate::process::run;
use crate::{Result, outside, say, workspace};

/// Number of test threads on an embedded etcd. These tests mostly wait, as for leases to expire, so many can wait at once.
const THREADS_ON_EMBEDDED: &str = "8";

/// Number of test threads on a real etcd, where the tests mostly wait too, but its processes need the processor.
const THREADS: &str = "6";

/// Targets whose tests run on any etcd.
const PROMISES: [&str; 4] = ["--test", "it", "--test", "differential"];

pub(crate) fn test(asked: &Asked, args: &[String]) -> Result<String> {
    let etcd = asked.find()?;
    match asked.etcd {
        Some(_) => test_on(&etcd, args),
        None => test_on_all(etcd, args),
    }
}

/// The arguments of `cargo test`: its own, then those of the tests' programs.
pub(crate) fn joined(mut args: Vec<String>, own: Vec<String>) -> Vec<String> {
    if !own.is_empty() {
        args.push("--".to_owned());
    }
    args.extend(own);
    args
}

/// Runs the promises on one etcd.
fn test_on(etcd: &Etcd, args: &[String]) -> Result<String> {
    let current = Etcd::find_current(etcd);
    let best = current.as_ref().unwrap_or(etcd);
    say::step(format_args!("the promises, on etcd {}", etcd.version));
    let mut cargo = only(suite(etcd, best), &PROMISES, args);
    run("cargo test", cargo.args(args))?;
    Ok(format!("test: ok — the promises on etcd {}", etcd.version))
}

fn test_on_all(first: Etcd, args: &[String]) -> Result<String> {
    let current = Etcd::find_current(&first);
    let best = current.as_ref().unwrap_or(&first);
    if best.ctl_version < CURRENT {
        say::note(format_args!(
            "etcdctl {} has to stand in for one ≥ 3.5",
            best.ctl_version
        ));
    }

    say::step(format_args!(
        "the whole workspace, on etcd {}",
        first.version
    ));
    run("cargo test", suite(&first, best).args(args))?;
    let mut versions = first.version.to_string();
    if let Some(current) = &current {
        say::step(format_args!(
            "the promises once more, on etcd {}",
            current.version
        ));
        run(
            "cargo test",
            only(suite(current, best), &PROMISES, args).args(args),
        )?;
        versions += &format!(", {}", current.version);
    }
    say::step("the promises once more, on an embedded etcd");
    run(
        "cargo test",
        only(suite(&first, best), &["--test", "it"], args)
            .args(args)
            .env("ETCD_LOCKED_TESTS_ON", "embedded")
            .env("RUST_TEST_THREADS", THREADS_ON_EMBEDDED),
    )?;
    versions += " and an embedded one";
    if !args.is_empty() {
        return Ok(format!(
            "test: ok — `{}` on etcd {versions}; the crate outside the workspace was left out",
            args.join(" ")
        ));
    }

    outside::test(&first)?;
    Ok(format!(
        "test: ok — the suite on etcd {versions}, and a crate outside the workspace"
    ))
}

/// Restricts `cargo test` to these targets, unless the arguments name others.
fn only(mut cargo: Command, targets: &[&str], args: &[String]) -> Command {
    if !args.iter().any(|arg| arg == "--test") {
        cargo.args(targets);
    }
    cargo
}

/// Makes `cargo test` with this etcd for the tests, of the whole workspace with all features.
///
/// For one package alone cargo would compile other features of the same crates, and leave out examples of the docs.
fn suite(etcd: &Etcd, best: &Etcd) -> Command {
    let mut cargo = workspace::cargo();
    cargo
        .args(["test", "--workspace", "--all-features"])
        .env_remove("ETCD_LOCKED_TESTS_ON")
        .envs(etcd.variables(best));
    if env::var_os("RUST_TEST_THREADS").is_none() {
        cargo.env("RUST_TEST_THREADS", THREADS);
    }
    cargo
}
