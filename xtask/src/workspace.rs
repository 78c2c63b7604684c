//! Where the workspace is, and cargo in it.

use std::path::PathBuf;
use std::process::Command;

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
