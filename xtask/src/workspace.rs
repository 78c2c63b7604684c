//! Where the workspace is, and cargo in it.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::Result;
use crate::process::Process;

/// The workspace's root. `cargo run` says where the package is now, which may not be where it was built.
pub(crate) fn root() -> PathBuf {
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    xtask.join("..").canonicalize().unwrap_or(xtask)
}

/// Where the tools live that we bring. Never `CARGO_TARGET_DIR`: they outlive its changes.
pub(crate) fn tools() -> PathBuf {
    root().join("target/tools")
}

/// The cargo that runs us.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo
}

/// Compiles binaries, each given by its package and name, together, so that what they share is compiled once; the
/// executables, in that order. `options` are cargo's own.
pub(crate) fn build<const N: usize>(
    options: &[&str],
    binaries: [(&str, &str); N],
) -> Result<[PathBuf; N]> {
    let mut cargo = cargo();
    cargo.arg("build").args(options);
    for (package, binary) in binaries {
        cargo.args(["--package", package, "--bin", binary]);
    }
    cargo
        .arg("--message-format=json-render-diagnostics")
        .stdout(Stdio::piped());
    let mut build = Process::start("cargo build", &mut cargo)?;
    let stdout = build
        .streams()
        .stdout
        .take()
        .ok_or("cargo build has no output")?;
    let built: Vec<PathBuf> = BufReader::new(stdout)
        .lines()
        .map_while(|line| line.ok())
        .filter_map(|line| executable(&line))
        .collect();
    let status = build.wait(Duration::MAX)?;
    if !status.success() {
        return Err(format!("cargo build: {status}"));
    }
    let found = binaries.map(|(_, binary)| {
        let mut built = built.iter();
        built.find(|path| path.file_stem().is_some_and(|name| name == binary))
    });
    if found.contains(&None) {
        return Err("cargo build names no executable".to_owned());
    }
    Ok(found.map(|path| path.cloned().unwrap_or_default()))
}

fn executable(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    message.get("executable")?.as_str().map(PathBuf::from)
}
