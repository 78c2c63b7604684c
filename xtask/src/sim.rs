//! `cargo xtask sim`: builds the simulator, fast, and runs it.

use crate::process::run;
use crate::{Result, say, workspace};

pub(crate) fn sim(args: &[String]) -> Result<String> {
    say::step("building the simulator");
    let mut build = workspace::cargo();
    build.args(["build", "--profile", "sim", "--package", "etcd-locked-sim"]);
    run("cargo build", &mut build)?;

    say::step("playing");
    let mut play = workspace::cargo();
    play.args(["run", "--quiet", "--profile", "sim"])
        .args([
            "--package",
            "etcd-locked-sim",
            "--bin",
            "etcd-locked-sim",
            "--",
        ])
        .args(args);
    run("the simulator", &mut play)?;
    Ok("sim: ok — nothing was violated".to_owned())
}
