//! `cargo xtask test`: everything there is to test, on every etcd there is.

use std::process::Command;

use crate::etcd::{CURRENT, Etcd};
use crate::process::run;
use crate::{Result, outside, say, workspace};

pub(crate) fn test(args: &[String]) -> Result<String> {
    say::step("etcd");
    let first = Etcd::find()?;
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
        let mut promises = suite(current, best);
        if !args.iter().any(|arg| arg == "--test") {
            promises.args(["--test", "it", "--test", "differential"]);
        }
        run("cargo test", promises.args(args))?;
        versions += &format!(" and {}", current.version);
    }
    if !args.is_empty() {
        return Ok(format!(
            "test: ok — `{}` on etcd {versions}; the crate outside the workspace was left out",
            args.join(" ")
        ));
    }

    outside::test(&first, best)?;
    Ok(format!(
        "test: ok — the suite on etcd {versions}, and a crate outside the workspace"
    ))
}

/// `cargo test` with this etcd for the tests. Always of the whole workspace with all features: for one package alone cargo
/// would compile other features of the same crates, and leave examples of the docs out.
fn suite(etcd: &Etcd, best: &Etcd) -> Command {
    let mut cargo = workspace::cargo();
    cargo
        .args(["test", "--workspace", "--all-features"])
        .envs(etcd.variables(best));
    cargo
}
