//! Go compiler: builds programs of a pinned Go module, below `target/tools`.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::process::output;
use crate::{Result, workspace};

/// How to install Go. The pinned modules require this version, which many distributions do not have yet.
const HOW: &str = "install Go 1.26 or later (https://go.dev/dl)";

/// Builds a package, or a `.go` file given by its absolute path, with the versions of the module in this folder.
pub(crate) fn build(module: &Path, package: &str, program: &Path) -> Result<()> {
    let folder = program.parent().unwrap_or(program);
    fs::create_dir_all(folder).map_err(workspace::failed_at(folder))?;
    let mut go = go(module);
    go.args(["build", "-buildvcs=false", "-o"]).arg(program);
    say_how(output(go.arg(package))).map(drop)
}

/// Returns the version of the compiler that builds this module, such as `go1.26.8 linux/amd64`.
pub(crate) fn version(module: &Path) -> Result<String> {
    let version = say_how(output(go(module).arg("version")))?;
    Ok(version.replace("go version", "").trim().to_owned())
}

/// Returns the version that a module pins of one of its dependencies.
pub(crate) fn pinned(module: &Path, dependency: &str) -> Result<String> {
    let mut go = go(module);
    go.args(["list", "-m", "-f", "{{.Version}}", dependency]);
    let version = say_how(output(&mut go))?;
    Ok(version.trim().trim_start_matches('v').to_owned())
}

fn go(module: &Path) -> Command {
    let mut go = Command::new("go");
    // Without C, the programs run on any Linux, and building them does not need a C compiler.
    go.current_dir(module).env("CGO_ENABLED", "0");
    go
}

fn say_how<T>(result: Result<T>) -> Result<T> {
    result.map_err(|error| format!("{error}; {HOW}"))
}
