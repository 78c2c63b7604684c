//! Peers: programs in Go, Java and Python for the benches and the examples, brought below `target/tools/peers`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::etcd::in_path;
use crate::process::output;
use crate::{Result, apt, go, say, workspace};

/// Module whose etcd client the Go programs are built with: that of the newest etcd in the tests.
const GO_MODULE: &str = "tests/etcd/3.7";
const GO_CLIENT: &str = "go.etcd.io/etcd/client/v3";

pub(crate) struct Go {
    pub(crate) program: PathBuf,
    pub(crate) version: String,
    /// Version of etcd's package.
    pub(crate) client: String,
}

/// Builds a program that locks with etcd's own Go package, from a folder of the workspace.
pub(crate) fn go(source: &str, name: &str) -> Result<Go> {
    let module = workspace::root().join(GO_MODULE);
    let source = workspace::root().join(source).join("main.go");
    let program = home("go")?.join(name);
    go::build(&module, &source.to_string_lossy(), &program)?;
    let version = go::version(&module)?;
    let client = go::pinned(&module, GO_CLIENT)?;
    say::note(format_args!("{version}, client {client}: {}", program.display()));
    Ok(Go { program, version, client })
}

/// Builds the program that locks with jetcd, using Maven; returns its class path.
pub(crate) fn jetcd() -> Result<OsString> {
    // Maven is a Java program too, but may use another Java than the one in PATH.
    if in_path("java").is_none() {
        return Err("no `java` in PATH; jetcd needs Java 17 or later (apt-get install default-jdk-headless)".to_owned());
    }
    let home = home("java")?;
    let jars = home.join("classpath");
    output(
        Command::new("mvn")
            .current_dir(workspace::root().join("examples/interop/java"))
            .args(["-q", "-B", "compile", "dependency:build-classpath"])
            .arg(format!("-Dmdep.outputFile={}", jars.display())),
    )
    .map_err(|error| {
        format!(
            "{error}; jetcd needs Java 17 or later and Maven (apt-get install default-jdk-headless maven), and Maven Central"
        )
    })?;
    let jars = workspace::read(jars)?;
    say::note(format_args!("jetcd: {}", home.display()));
    let paths = std::env::split_paths(jars.trim()).chain([home.join("classes")]);
    std::env::join_paths(paths).map_err(|error| error.to_string())
}

/// Finds promtool in `PATH`, else unpacks the distribution's package of Prometheus.
pub(crate) fn promtool() -> Result<PathBuf> {
    if let Some(installed) = in_path("promtool") {
        return Ok(installed);
    }
    let home = home("prometheus")?;
    let promtool = home.join("usr/bin/promtool");
    if !promtool.is_file() {
        say::note("unpacking promtool from the distribution's package (20 MB)");
        apt::unpack(&["prometheus"], &home)?;
    }
    Ok(promtool)
}

pub(crate) struct Python {
    pub(crate) interpreter: PathBuf,
    pub(crate) packages: PathBuf,
    /// Version of aetcd.
    pub(crate) client: String,
}

/// Installs the packages of the Python programs below `target/tools`, with pip.
pub(crate) fn python() -> Result<Python> {
    let interpreter = PathBuf::from("python3");
    let wanted = workspace::root().join("benches/peers/python/requirements.txt");
    let packages = home("python")?;
    if !imports(&interpreter, &packages, &wanted) {
        output(
            Command::new(&interpreter)
                .args(["-m", "pip", "install", "--quiet", "--upgrade"])
                .args(["--disable-pip-version-check", "--root-user-action=ignore"])
                .arg("--target")
                .arg(&packages)
                .arg("--requirement")
                .arg(&wanted),
        )
        .map_err(|error| {
            format!(
                "{error}; the Python peer needs python3 3.10 or later with pip (apt-get install python3-pip), and a package index"
            )
        })?;
        workspace::copy(&wanted, packages.join("requirements.txt"))?;
    }
    let client = aetcd_version(&packages).ok_or("pip does not say which aetcd it has installed")?;
    say::note(format_args!("aetcd {client}: {}", packages.display()));
    Ok(Python { interpreter, packages, client })
}

/// Returns the version in the name of the folder in which pip describes aetcd.
fn aetcd_version(packages: &Path) -> Option<String> {
    let mut files = fs::read_dir(packages).ok()?.flatten();
    files.find_map(|file| {
        let name = file.file_name().into_string().ok()?;
        let version = name.strip_prefix("aetcd-")?.strip_suffix(".dist-info")?;
        Some(version.to_owned())
    })
}

/// Returns the version of etcd-client in `Cargo.lock`.
pub(crate) fn etcd_client() -> Result<String> {
    let id = output(workspace::cargo().args(["pkgid", "etcd-client"]))?;
    let version = id.trim().rsplit(['@', '#']).next().unwrap_or_default();
    Ok(version.to_owned())
}

/// Returns true if the wanted packages are installed, and this interpreter can import them.
fn imports(interpreter: &Path, packages: &Path, wanted: &Path) -> bool {
    let text = |file: &Path| fs::read_to_string(file).ok();
    let same = text(&packages.join("requirements.txt")) == text(wanted);
    same && output(
        Command::new(interpreter).env("PYTHONPATH", packages).args(["-c", "import aetcd"]),
    )
    .is_ok()
}

fn home(peer: &str) -> Result<PathBuf> {
    let home = workspace::tools().join("peers").join(peer);
    fs::create_dir_all(&home).map_err(workspace::failed_at(&home))?;
    Ok(home)
}
