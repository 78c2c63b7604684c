//! etcd binaries: the user's choice, those in `PATH`, those that Go builds, or the distribution's.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use crate::process::output;
use crate::{Result, apt, go, say, workspace};

/// Versions that Go builds from the modules in `tests/etcd`, the newest first.
const BUILT: [&str; 3] = ["3.7", "3.6", "3.5"];

/// etcd server. Its `etcdctl`, if there is one, is in the same folder.
#[derive(Clone, Debug)]
pub(crate) struct Etcd {
    pub(crate) server: PathBuf,
    pub(crate) version: String,
}

/// Choice of an etcd, as given by `--etcd`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    /// First etcd whose version matches: `3.7` and `3.7.3` both match 3.7.3.
    Version(String),
    /// Path of a server, or of its folder.
    Path(PathBuf),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self> {
        let is_version = text.split('.').all(|part| part.parse::<u32>().is_ok());
        match text {
            "newest" => Ok(Self::Version(BUILT[0].to_owned())),
            _ if text.contains('/') => Ok(Self::Path(text.into())),
            _ if is_version => Ok(Self::Version(text.to_owned())),
            _ => Err("write `newest`, a version such as 3.7 or 3.5.35, or the path of an etcd"
                .to_owned()),
        }
    }
}

/// Finds the chosen etcd, or any. If it is missing, brings it below `target/tools`.
pub(crate) fn find(choice: Option<&Choice>) -> Result<Etcd> {
    say::step("etcd");
    let etcd = match choice {
        None => any()?,
        Some(Choice::Version(version)) => of_version(version)?,
        Some(Choice::Path(path)) => {
            // Commands run in another folder than the one to which the path is relative.
            let path = path.canonicalize().map_err(workspace::failed_at(path))?;
            Etcd::new(if path.is_dir() { path.join("etcd") } else { path })?
        }
    };
    say::note(format_args!("etcd {}: {}", etcd.version, etcd.server.display()));
    Ok(etcd)
}

/// Finds `ETCD_BIN`, else the etcd in `PATH`, else the newest that Go builds, else the distribution's package.
fn any() -> Result<Etcd> {
    if let Some(etcd) = Etcd::chosen()?.or_else(Etcd::installed) {
        return Ok(etcd);
    }
    built(BUILT[0]).or_else(|no_go| {
        say::note(&no_go);
        distribution().map_err(|no_package| {
            format!(
                "no etcd is available:\n   {no_go}\n   {no_package}\ninstall one (apt-get install etcd-server etcd-client · \
                 dnf install etcd · brew install etcd) or set ETCD_BIN"
            )
        })
    })
}

/// Finds an etcd of this version: the one of `ETCD_BIN`, the one in `PATH`, one that Go builds, or the distribution's.
fn of_version(version: &str) -> Result<Etcd> {
    let installed = Etcd::chosen()?.into_iter().chain(Etcd::installed());
    for etcd in installed {
        if matches(&etcd.version, version) {
            return Ok(etcd);
        }
    }
    for line in BUILT {
        if matches(&pinned(line)?, version) {
            return built(line);
        }
    }
    let packaged = distribution()?;
    if matches(&packaged.version, version) {
        return Ok(packaged);
    }
    Err(format!(
        "no etcd {version} is available: the distribution's is {}; set ETCD_BIN to one, or give its path",
        packaged.version
    ))
}

/// Returns true if a version is the wanted one, or begins with it.
fn matches(version: &str, wanted: &str) -> bool {
    version.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl Etcd {
    fn chosen() -> Result<Option<Self>> {
        let Some(server) = env::var_os("ETCD_BIN") else { return Ok(None) };
        let etcd = Self::new(server.into());
        etcd.map(Some)
            .map_err(|error| format!("{error}; ETCD_BIN must name an etcd server, or be unset"))
    }

    fn installed() -> Option<Self> {
        Self::new(in_path("etcd")?).ok()
    }

    /// Runs the server to read its version.
    fn new(server: PathBuf) -> Result<Self> {
        let mut command = Command::new(&server);
        // etcd 3.4 requires this on arm64, and ignores it elsewhere.
        command.arg("--version").env("ETCD_UNSUPPORTED_ARCH", "arm64");
        let version = word_after("etcd Version: ", &output(&mut command)?)
            .ok_or_else(|| format!("`{}` does not print its version", server.display()))?;
        Ok(Self { server, version })
    }
}

fn word_after(text: &str, of: &str) -> Option<String> {
    Some(of.split_once(text)?.1.split_whitespace().next()?.to_owned())
}

pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// Returns an etcd of this version, built once from its module in `tests/etcd`.
fn built(line: &str) -> Result<Etcd> {
    let version = pinned(line)?;
    let home = home(line);
    if let Ok(etcd) = Etcd::new(home.join("etcd"))
        && etcd.version == version
    {
        return Ok(etcd);
    }
    say::note(format_args!(
        "building etcd {version} with Go, which takes about a minute, into {}",
        home.display()
    ));
    let bring = |scratch: &Path| {
        for (package, name) in [("server", "etcd"), ("etcdctl", "etcdctl"), ("etcdutl", "etcdutl")]
        {
            let package = format!("go.etcd.io/etcd/{package}/v3");
            go::build(&module(line), &package, &scratch.join(name))?;
        }
        Ok(scratch.to_owned())
    };
    keep(line, bring).map_err(|reason| format!("etcd {version} was not built: {reason}"))
}

/// Returns the version that a module in `tests/etcd` pins.
fn pinned(line: &str) -> Result<String> {
    let file = module(line).join("go.mod");
    word_after("go.etcd.io/etcd/server/v3 v", &workspace::read(&file)?)
        .ok_or_else(|| format!("{} does not pin a server", file.display()))
}

fn module(line: &str) -> PathBuf {
    workspace::root().join("tests/etcd").join(line)
}

/// Returns the etcd of the distribution's packages, unpacked once.
fn distribution() -> Result<Etcd> {
    const FOLDER: &str = "distribution";
    if let Ok(etcd) = Etcd::new(home(FOLDER).join("etcd")) {
        return Ok(etcd);
    }
    say::note("unpacking the distribution's etcd (apt-get download, dpkg -x)");
    let bring = |scratch: &Path| {
        apt::unpack(&["etcd-server", "etcd-client"], scratch)?;
        Ok(scratch.join("usr/bin"))
    };
    keep(FOLDER, bring).map_err(|reason| format!("the distribution's etcd: {reason}"))
}

/// Returns the folder of an etcd that xtask keeps. The devkit looks there too.
fn home(folder: &str) -> PathBuf {
    workspace::tools().join("etcd").join(folder)
}

/// Calls `bring` with a scratch folder, then moves the binaries from the folder that it returns to `home(folder)`.
fn keep(folder: &str, bring: impl FnOnce(&Path) -> Result<PathBuf>) -> Result<Etcd> {
    let home = home(folder);
    let io = workspace::failed_at(&home);
    fs::create_dir_all(&home).map_err(io)?;
    let scratch = tempfile::tempdir_in(workspace::tools()).map_err(io)?;
    let from = bring(scratch.path())?;
    // Each file is renamed whole, so another xtask never finds a partial file. The server moves last, so if it exists, all exist.
    for name in ["etcdutl", "etcdctl", "etcd"] {
        if from.join(name).is_file() {
            fs::rename(from.join(name), home.join(name)).map_err(io)?;
        }
    }
    Etcd::new(home.join("etcd"))
}
