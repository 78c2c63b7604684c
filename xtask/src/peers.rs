//! Peers: programs in Go and Python for the benches and the examples, brought below `target/tools/peers`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::output;
use crate::{Result, say, workspace};

/// Folder in which Debian and its relatives keep the sources of Go packages.
const GO_PACKAGES: &str = "/usr/share/gocode";
const GO_PACKAGE: &str = "src/go.etcd.io/etcd/clientv3/concurrency";
/// The file that names its version.
const GO_VERSION: &str = "src/go.etcd.io/etcd/version/version.go";

pub(crate) struct Go {
    pub(crate) program: PathBuf,
    pub(crate) version: String,
    /// The version of etcd's package.
    pub(crate) client: String,
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
    let client = Path::new(GO_PACKAGES).join(GO_VERSION);
    let client = go_version(&workspace::read(client)?).ok_or("etcd's Go package has no version")?;
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
    Ok(Go {
        program,
        version,
        client,
    })
}

/// The version in etcd's `version.go`.
fn go_version(text: &str) -> Option<String> {
    let line = text
        .lines()
        .find(|line| line.trim_start().starts_with("Version "))?;
    let (_, version) = line.split_once('"')?;
    version.split('"').next().map(str::to_owned)
}

pub(crate) struct Python {
    pub(crate) interpreter: PathBuf,
    pub(crate) packages: PathBuf,
    /// The version of aetcd.
    pub(crate) client: String,
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
        workspace::copy(&wanted, packages.join("requirements.txt"))?;
    }
    let client = aetcd_version(&packages).ok_or("pip does not say which aetcd it has installed")?;
    say::note(format_args!("aetcd {client}: {}", packages.display()));
    Ok(Python {
        interpreter,
        packages,
        client,
    })
}

/// The version in the name of the folder in which pip describes aetcd.
fn aetcd_version(packages: &Path) -> Option<String> {
    let mut files = fs::read_dir(packages).ok()?.flatten();
    files.find_map(|file| {
        let name = file.file_name().into_string().ok()?;
        let version = name.strip_prefix("aetcd-")?.strip_suffix(".dist-info")?;
        Some(version.to_owned())
    })
}

/// The version of etcd-client in `Cargo.lock`.
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
        Command::new(interpreter)
            .env("PYTHONPATH", packages)
            .args(["-c", "import aetcd"]),
    )
    .is_ok()
}

fn home(peer: &str) -> Result<PathBuf> {
    let home = workspace::tools().join("peers").join(peer);
    fs::create_dir_all(&home).map_err(workspace::failed_at(&home))?;
    Ok(home)
}

#[cfg(test)]
mod tests {
    use super::go_version;

    #[test]
    fn version_of_the_go_package_is_found() {
        let text = "\tMinClusterVersion = \"3.0.0\"\n\tVersion           = \"3.4.23\"\n";
        assert_eq!(go_version(text).as_deref(), Some("3.4.23"));
        assert_eq!(go_version("package version"), None);
    }
}
