//! Tools: the machine's rust-analyzer, and the sources of the standard library that it reads.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::output;
use crate::{Result, etcd, workspace};

const HOW: &str = "`rustup component add rust-analyzer rust-src` brings it and the sources of std (`cargo install ra_ap_rust-analyzer` \
                   builds it); RUST_ANALYZER names another one, RUST_SRC_PATH a folder `library` with those sources";

/// Where the sources of the standard library are below the compiler's own folder.
const SOURCES: &str = "lib/rustlib/src/rust/library";

#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) program: PathBuf,
    pub(crate) version: String,
    /// The folder `library`. Without it nothing of std has a type, and every answer would be wrong.
    pub(crate) library: PathBuf,
}

impl Tools {
    pub(crate) fn find() -> Result<Self> {
        let (program, version) = program()?;
        Ok(Self { program, version, library: library()? })
    }
}

/// Finds rust-analyzer, and asks for its version. rustup's proxy is in PATH without it, and fails.
fn program() -> Result<(PathBuf, String)> {
    if let Some(named) = env::var_os("RUST_ANALYZER") {
        let named = absolute(PathBuf::from(named));
        let version = version(&named).map_err(|error| format!("RUST_ANALYZER: {error}"))?;
        return Ok((named, version));
    }
    let installed = etcd::in_path("rust-analyzer");
    let answers = installed.and_then(|program| Some((version(&program).ok()?, program)));
    answers
        .map(|(version, program)| (program, version))
        .ok_or_else(|| format!("no rust-analyzer on this machine; {HOW}"))
}

fn version(program: &Path) -> Result<String> {
    let said = output(Command::new(program).arg("--version"))?;
    Ok(said.trim().to_owned())
}

fn library() -> Result<PathBuf> {
    let library = match env::var_os("RUST_SRC_PATH") {
        Some(named) => absolute(PathBuf::from(named)),
        None => {
            let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
            let mut rustc = Command::new(rustc);
            rustc.current_dir(workspace::root());
            let sysroot = output(rustc.args(["--print", "sysroot"]))?;
            Path::new(sysroot.trim()).join(SOURCES)
        }
    };
    if library.join("core/src/lib.rs").is_file() {
        return Ok(library);
    }
    Err(format!("no sources of the standard library in {}; {HOW}", library.display()))
}

/// Makes a path with a folder in it absolute, as rust-analyzer runs elsewhere; a bare name is looked up in PATH.
fn absolute(path: PathBuf) -> PathBuf {
    match path.components().count() {
        1 => path,
        _ => std::path::absolute(&path).unwrap_or(path),
    }
}
