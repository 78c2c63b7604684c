//! The Protocol Buffers compiler that a crate carries.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::Result;

/// Becomes protoc.
pub(crate) fn exec(args: &[String]) -> Result<String> {
    // It finds its standard types beside itself.
    let error = Command::new(carried()?).args(args).exec();
    Err(format!("protoc does not start: {error}; install protoc"))
}

/// The executable in its crate.
pub(crate) fn carried() -> Result<PathBuf> {
    protoc_bin_vendored::protoc_bin_path().map_err(|error| format!("{error}; install protoc"))
}

/// The machine's protoc, by the rule of the wrapper `xtask/protoc`: it must have its standard types beside it.
pub(crate) fn of_machine() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let protoc = std::env::split_paths(&path)
        .map(|dir| dir.join("protoc"))
        .find(|file| file.is_file())?;
    protoc
        .parent()?
        .join("../include/google/protobuf/descriptor.proto")
        .exists()
        .then_some(protoc)
}
