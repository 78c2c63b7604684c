//! Peers: programs in Go and Python for the benches and the examples, brought below `target/tools/peers`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::output;
use crate::{Result, say, workspace};

/// Folder in which Debian and its relatives keep the sources of Go packages.
const GO_PACKAGES: &str = "/usr/share/gocode";
const GO_PACKAGE: &str = "src/go.etcd.io/etcd/clientv3/concurrency";

pub(crate) struct Go {
    pub(crate) program: PathBuf,
    pub(crate) version: String,
}

/// Builds a program that locks by etcd's own Go package, from a folder of the workspace.
///
/// Compiler and package come from the distribution, because the package depends on a hundred others.
pub(crate) fn go(source: &str, name: &str) -> Result<Go> {
    let how = "apt-get install golang-go golang-etcd-server-dev";
    let version = output(Command::new("go").arg("version"))
        .map_err(|error| format!("{error}; the Go peer needs a Go compiler: {how}"))?;
    let version = version.replace("go version", "").trim().to_owned();
    let package = Path::new(GO_PACKAGES).join(GO_PACKAGE);
    if !package.is_dir() {
        return Err(format!(
            "there is no {}; the Go peer needs etcd's Go packages: {how}",
            package.display()
        ));
    }
    let home = home("go")?;
    let program = home.join(name);
    output(
        Command::new("go")
            .current_dir(workspace::root().join(source))
            .env("GO111MODULE", "off")
            .env("GOPATH", format!("{}:{GO_PACKAGES}", home.display()))
            .env_remove("GOFLAGS")
            .args(["build", "-o"])
            .arg(&program)
            .arg("."),
    )?;
    say::note(format_args!("{version}: {}", program.display()));
    Ok(Go { program, version })
}

pub(crate) struct Python {
    pub(crate) interpreter: PathBuf,
    pub(crate) packages: PathBuf,
}

/// Installs the packages of the Python programs below `target/tools`, by pip.
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
                "{error}; the Python peer needs python3 from 3.10 on with pip (apt-get install python3-pip), and a package index"
            )
        })?;
        let io = |error: std::io::Error| format!("{}: {error}", packages.display());
        fs::copy(&wanted, packages.join("requirements.txt")).map_err(io)?;
    }
    say::note(format_args!("aetcd: {}", packages.display()));
    Ok(Python {
        interpreter,
        packages,
    })
}

/// Returns true if the wanted packages are installed, and this interpreter can import them.
fn imports(interpreter: &Path, packages: &Path, wanted: &Path) -> bool {
    let text = |file: &Path| fs::read_to_string(file).ok();
    let same = text(&packages.join("requirements.txt")) == text(wanted);
    same && output(
        Command::new(interpreter)
            .env("PYTHONPATH", packages)
            .args(["-c", "import aetcd"]),
    )
    .is_ok()
}

fn home(peer: &str) -> Result<PathBuf> {
    let home = workspace::tools().join("peers").join(peer);
    fs::create_dir_all(&home).map_err(|error| format!("{}: {error}", home.display()))?;
    Ok(home)
}
