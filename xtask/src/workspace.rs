//! Workspace of the project: its root, its tools, cargo in it, and files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::process::run;

/// Returns the workspace's root. `cargo run` sets the package's current folder, which may not be the one in which it was built.
pub(crate) fn root() -> PathBuf {
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    xtask.join("..").canonicalize().unwrap_or(xtask)
}

/// Returns the folder of the tools that xtask brings. It is never in `CARGO_TARGET_DIR`, so the tools stay if that changes.
pub(crate) fn tools() -> PathBuf {
    root().join("target/tools")
}

/// Returns the folder in which cargo builds the workspace.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Makes a command of the cargo that runs xtask.
pub(crate) fn cargo() -> Command {
    clean(Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())))
}

/// Makes a command run in the root, as if cargo had not started xtask.
pub(crate) fn clean(mut cargo: Command) -> Command {
    cargo.current_dir(root());
    // Removes the variables that cargo set for xtask. Some build scripts (of ring and etcd-client) read them. They would run again
    // after each change between plain cargo and xtask, and their dependents would be rebuilt.
    for (name, value) in std::env::vars_os() {
        let of_xtask = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        });
        // Set by `.cargo/config.toml`.
        let configured = name == "PROTOC" && root().join("xtask/protoc") == Path::new(&value);
        if of_xtask || configured {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Makes a cargo command for a crate outside the workspace. It reuses registry crates that are built with the same features.
pub(crate) fn cargo_outside(command: &str, folder: &Path) -> Command {
    let mut cargo = cargo();
    cargo.arg(command).arg("--manifest-path").arg(folder.join("Cargo.toml"));
    cargo.arg("--target-dir").arg(target());
    cargo
}

/// Copies a crate from a folder of the workspace, such as `tests/outside`, to `target/`, and returns its folder. There it builds
/// like a user's crate, and keeps its lock file.
///
/// The copy is as deep below the root as the original, so that its path to the runtime holds.
pub(crate) fn outside(folder: &str) -> Result<PathBuf> {
    let kept = root().join(folder);
    let name = kept.file_name().ok_or("a folder without a name")?;
    let copy = root().join("target").join(name);
    for file in entries(&kept)?.iter().filter(|file| file.is_file()) {
        self::copy(file, copy.join(file.file_name().unwrap_or_default()))?;
    }
    // The versions that the workspace is tested with; cargo resolves only crates that the workspace does not use.
    self::copy(root().join("Cargo.lock"), copy.join("Cargo.lock"))?;
    Ok(copy)
}

/// Makes the message of an error at a path.
pub(crate) fn failed_at(path: &Path) -> impl Fn(std::io::Error) -> String + Copy {
    move |error: std::io::Error| format!("{}: {error}", path.display())
}

/// Reads a text.
pub(crate) fn read(file: impl AsRef<Path>) -> Result<String> {
    let file = file.as_ref();
    fs::read_to_string(file).map_err(failed_at(file))
}

/// Writes a file; makes the folder if necessary.
pub(crate) fn write(file: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<()> {
    let file = file.as_ref();
    make_folder_of(file)?;
    fs::write(file, content).map_err(failed_at(file))
}

/// Copies a file, with its permissions; makes the folder if necessary.
pub(crate) fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
    let from = from.as_ref();
    make_folder_of(to.as_ref())?;
    fs::copy(from, to).map(drop).map_err(failed_at(from))
}

fn make_folder_of(file: &Path) -> Result<()> {
    let folder = file.parent().unwrap_or(file);
    fs::create_dir_all(folder).map_err(failed_at(folder))
}

/// Lists a folder.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(failed_at(folder))?;
    let paths = entries.map(|entry| entry.map(|it| it.path()));
    let paths: std::io::Result<_> = paths.collect();
    paths.map_err(failed_at(folder))
}

/// Returns the folder of the programs of these tests, as `cargo xtask test` builds them: with the features of all tests, so that
/// nothing is compiled again.
pub(crate) fn built_for_tests(tests: &[&str]) -> Result<PathBuf> {
    let mut cargo = cargo();
    cargo.args(["test", "--workspace", "--all-features", "--no-run"]);
    cargo.args(tests.iter().flat_map(|test| ["--test", test]));
    run("cargo test", &mut cargo)?;
    Ok(target().join("debug"))
}

/// Compiles binaries, each given by its package and name, and returns the executables in that order.
///
/// One cargo compiles them together, so that their common crates are compiled once. `options` are cargo's own.
pub(crate) fn build<const N: usize>(
    options: &[&str],
    binaries: [(&str, &str); N],
) -> Result<[PathBuf; N]> {
    let mut cargo = cargo();
    cargo.arg("build").args(options);
    for (package, binary) in binaries {
        cargo.args(["--package", package, "--bin", binary]);
    }
    run("cargo build", &mut cargo)?;
    let profile = if options.contains(&"--release") { "release" } else { "debug" };
    Ok(binaries.map(|(_, binary)| target().join(profile).join(binary)))
}
