//! Programs of row B20: one crate, built once without spans and metrics and once with both.

use std::path::PathBuf;

use crate::process::run;
use crate::{Result, say, workspace};

/// The crate's folder, and the name of its program.
const CRATE: (&str, &str) = ("benches/telemetry", "telemetry");

/// Builds the program with this feature of the crate, and returns it.
pub(super) fn build(feature: &str) -> Result<PathBuf> {
    say::step(format_args!("the program of B20, feature `{feature}`"));
    let (folder, name) = CRATE;
    let copy = workspace::outside(folder, "main.rs")?;
    let target = copy.join("target");
    let mut cargo = workspace::cargo();
    cargo
        .args(["build", "--release", "--quiet", "--features", feature])
        .arg("--manifest-path")
        .arg(copy.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target);
    run("cargo build", &mut cargo)?;
    // The next feature's program has the same name.
    let (built, program) = (target.join("release").join(name), copy.join(feature));
    workspace::copy(built, &program)?;
    Ok(program)
}
