//! `cargo xtask package`: packs what is published, checks its READMEs and licences, and builds a crate outside the repository and the
//! command line from the packed form.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use etcd_locked_devkit::binary::without_settings;

use crate::links::Links;
use crate::process::{output, run};
use crate::{Result, say, workspace};

/// Published packages, in the order of publication: each after those it depends on.
pub(crate) const PACKAGES: &[&str] = &[
    "etcd-locked-core",
    "etcd-locked-macros",
    "etcd-locked-embedded",
    "etcd-locked",
    "etcd-locked-cli",
];

/// Manifest of a user's crate, whose `main.rs` is that of `tests/outside`.
const USER: &str = r#"[package]
name = "user"
version = "0.0.0"
edition = "2024"

[workspace]

[[bin]]
name = "user"
path = "main.rs"

[dependencies]
etcd-locked = { version = "*", features = ["axum", "embedded", "tls"] }
axum = { version = "0.8", default-features = false, features = ["http1", "json", "tokio"] }
tokio = { version = "1", default-features = false, features = ["macros", "rt-multi-thread", "time"] }
"#;

pub(crate) fn package() -> Result<String> {
    let home = workspace::root().join("target/packed");
    let io = workspace::failed_at(&home);

    say::step("packing");
    // Remove archives of older versions, which would be unpacked too.
    let packed = home.join("package");
    if packed.is_dir() {
        fs::remove_dir_all(&packed).map_err(io)?;
    }
    let mut cargo = workspace::cargo();
    cargo.args(["package", "--no-verify", "--allow-dirty", "--target-dir"]).arg(&home);
    for package in PACKAGES {
        cargo.args(["--package", package]);
    }
    run("cargo package", &mut cargo)?;

    say::step("unpacking");
    let crates = home.join("crates");
    if crates.is_dir() {
        fs::remove_dir_all(&crates).map_err(io)?;
    }
    fs::create_dir_all(&crates).map_err(io)?;
    for archive in workspace::entries(&packed)? {
        if archive.extension().is_some_and(|it| it == "crate") {
            // `-m`: the archives have old times, so cargo would think that nothing has changed.
            let mut tar = Command::new("tar");
            output(tar.arg("-xmzf").arg(&archive).arg("-C").arg(&crates))?;
        }
    }
    let unpacked = workspace::entries(&crates)?;

    say::step("READMEs and licences");
    let mut links = Links::default();
    for package in &unpacked {
        workspace::read(package.join("LICENSE-APACHE"))?;
        workspace::read(package.join("LICENSE-MIT"))?;
        links.check(&package.join("README.md"), None)?;
    }
    let links = links.finish()?;

    say::step("a user's crate");
    let user = home.join("user");
    workspace::write(user.join("Cargo.toml"), USER)?;
    let program = workspace::root().join("tests/outside/main.rs");
    workspace::copy(program, user.join("main.rs"))?;
    build(&user, &unpacked, &home)?;
    let mut program = without_settings(&home.join("debug/user"), "ETCD");
    let printed = output(program.env("ETCD_LOCKED_ENDPOINTS", "embedded"))?;
    if printed.trim_end() != "shipping 42" {
        return Err(format!("the user's crate does not ship: it prints `{printed}`"));
    }

    say::step("the command line");
    let cli = unpacked.iter().find(|it| name(it) == "etcd-locked-cli");
    let cli = cli.ok_or("the command line was not packed")?;
    // Its folder is below this workspace, and cargo would take it for a member.
    let manifest = cli.join("Cargo.toml");
    let own = workspace::read(&manifest)? + "\n[workspace]\n";
    workspace::write(&manifest, own)?;
    build(cli, &unpacked, &home)?;
    let packages = PACKAGES.len();
    Ok(format!("package: ok — {packages} packages, {links} links; built from {}", crates.display()))
}

/// Builds a crate against the unpacked packages instead of those of the registry.
fn build(folder: &Path, unpacked: &[PathBuf], target: &Path) -> Result<()> {
    let mut cargo = workspace::cargo();
    cargo
        .arg("build")
        .arg("--manifest-path")
        .arg(folder.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target);
    for package in unpacked {
        let patch =
            format!("patch.crates-io.{}.path={:?}", name(package), package.display().to_string());
        cargo.arg("--config").arg(patch);
    }
    run("cargo build", &mut cargo)
}

/// Returns the package's name of a folder such as `etcd-locked-core-0.1.0`.
fn name(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    name.rsplit_once('-').map_or_else(|| name.to_string(), |(name, _)| name.to_owned())
}
