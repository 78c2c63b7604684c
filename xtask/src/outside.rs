//! Tests of crates outside the workspace, which build like a user's crate.

use std::env;
use std::ffi::OsString;
use std::path::Path;

use etcd_locked_devkit::Setup;
use etcd_locked_devkit::binary::without_settings;

use crate::etcd::Etcd;
use crate::process::{output, run};
use crate::{Result, protoc, say, workspace};

/// Compiles the first examples of the documentation with the protoc in `PATH`, and runs them.
pub(crate) fn test(etcd: &Etcd) -> Result<()> {
    say::step("a crate outside the workspace, with protoc from PATH");
    let copy = workspace::outside("tests/outside")?;
    let mut cargo = workspace::cargo_outside("build", &copy);
    // It runs in a folder to which the workspace's `.cargo/config.toml` does not apply.
    cargo.current_dir(env::temp_dir()).env_remove("PROTOC").env("PATH", path_with_protoc()?);
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "0"); // as the workspace builds what it depends on
    run("cargo build", &mut cargo)?;

    let server = Setup::default().binary(&etcd.server).start()?;
    let mut program = without_settings(&workspace::target().join("debug/outside"), "ETCD");
    let printed = output(program.env("ETCD_LOCKED_ENDPOINTS", server.endpoint()))?;
    match printed.trim_end() {
        "shipping 42" => Ok(()),
        other => Err(format!("the crate outside the workspace prints `{other}`")),
    }
}

/// Calls the handlers of `tests/works-with`, each through its framework.
pub(crate) fn works_with() -> Result<String> {
    say::step("the frameworks (the first build takes about three minutes)");
    let copy = workspace::outside("tests/works-with")?;
    let mut cargo = workspace::cargo_outside("test", &copy);
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "0"); // as the workspace builds what it depends on
    run("cargo test", &mut cargo)?;
    Ok(format!("works-with: ok — the versions are in {}", copy.join("Cargo.lock").display()))
}

fn path_with_protoc() -> Result<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    if protoc::of_machine().is_some() {
        return Ok(path);
    }
    say::note("this machine has no protoc; PATH gets the one that a crate carries");
    let carried = protoc::carried()?;
    let dirs = carried.parent().map(Path::to_path_buf).into_iter().chain(env::split_paths(&path));
    env::join_paths(dirs).map_err(|error| format!("PATH: {error}"))
}
