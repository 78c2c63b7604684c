//! Test of a crate outside the workspace, as a user has one.
//!
//! It finds protoc in `PATH`, compiles the first examples of the documentation, and its lock keeps `etcdctl lock` out.

use std::env;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use etcd_locked_devkit::binary::without_settings;
use etcd_locked_devkit::{Member, Setup, until};

use crate::etcd::Etcd;
use crate::process::{Process, run};
use crate::{Result, protoc, say, workspace};

/// Time for which `etcdctl` must be seen waiting.
const WATCHED: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn test(etcd: &Etcd, contender: &Etcd) -> Result<()> {
    say::step("a crate outside the workspace, with protoc from PATH");
    let copy = workspace::outside("tests/outside", "main.rs")?;
    run("cargo build", build(&copy)?.current_dir(env::temp_dir()))?;

    let server = Setup::default().binary(&etcd.server).start()?;
    excludes_etcdctl(&server, contender, &copy.join("target/debug/outside"))
}

/// Builds the copy. It runs in a directory that the workspace's `.cargo/config.toml` does not reach.
fn build(copy: &Path) -> Result<Command> {
    let mut cargo = workspace::cargo();
    cargo
        .arg("build")
        .arg("--manifest-path")
        .arg(copy.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(copy.join("target"));
    cargo.env_remove("PROTOC").env("PATH", path_with_protoc()?);
    Ok(cargo)
}

fn path_with_protoc() -> Result<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    if protoc::of_machine().is_some() {
        return Ok(path);
    }
    say::note("this machine has no protoc; the one a crate carries goes into PATH");
    let carried = protoc::carried()?;
    let dirs = carried
        .parent()
        .map(Path::to_path_buf)
        .into_iter()
        .chain(env::split_paths(&path));
    env::join_paths(dirs).map_err(|error| format!("PATH: {error}"))
}

fn excludes_etcdctl(server: &Member, contender: &Etcd, executable: &Path) -> Result<()> {
    let mut command = Command::new(executable);
    command
        .env("ETCD_LOCKED_ENDPOINTS", server.endpoint())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut holder = Process::start("the crate outside", &mut command)?;
    let mut lines = BufReader::new(holder.streams().stdout.take().ok_or("no output")?).lines();
    match lines.next() {
        Some(Ok(line)) if line == "shipping 42" => {}
        other => return Err(format!("the crate outside does not ship: {other:?}")),
    }

    let mut lock = without_settings(&contender.ctl, "ETCDCTL_");
    lock.env("ETCDCTL_API", "3")
        .args(["--endpoints", &server.endpoint()])
        .args(["lock", "locks/orders/42", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let mut foreign = Process::start("etcdctl lock", &mut lock)?;
    let keys = || server.gateway().keys("locks/orders/42/");
    until(
        "etcdctl queues behind our key below locks/orders/42/",
        PATIENCE,
        || keys().is_ok_and(|keys| keys.len() == 2),
    )?;
    thread::sleep(WATCHED);
    if let Some(status) = foreign.ended()? {
        return Err(format!(
            "etcdctl lock locks/orders/42 got in while we held it: {status}"
        ));
    }
    say::note(format_args!(
        "we hold orders/42; etcdctl {} lock locks/orders/42 waits",
        contender.ctl_version
    ));

    // After a line on its input the body returns.
    let mut stdin = holder.streams().stdin.take().ok_or("no input")?;
    stdin
        .write_all(b"\n")
        .map_err(|error| format!("the crate outside: {error}"))?;
    let status = foreign.wait(PATIENCE)?;
    if !status.success() {
        return Err(format!(
            "etcdctl lock locks/orders/42, after our release: {status}"
        ));
    }
    say::note("we released it; etcdctl got it and ran its command");
    let status = holder.wait(PATIENCE)?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("the crate outside: {status}"))
    }
}
