//! Binaries of protoc, the Protocol Buffers compiler: the one that a crate carries, and the machine's.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::Result;

/// Replaces this process with the carried protoc; returns why that failed.
pub(crate) fn exec(args: impl Iterator<Item = OsString>) -> String {
    match carried() {
        // protoc finds its standard types relative to its own path.
        Ok(protoc) => {
            let error = Command::new(protoc).args(args).exec();
            format!("protoc does not start: {error}; install protoc")
        }
        Err(error) => error,
    }
}

/// Returns the executable that the crate carries.
pub(crate) fn carried() -> Result<PathBuf> {
    protoc_bin_vendored::protoc_bin_path().map_err(|error| format!("{error}; install protoc"))
}

/// Finds the machine's protoc. As in the wrapper `xtask/protoc`, it must come with its standard types.
pub(crate) fn of_machine() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let protoc =
        std::env::split_paths(&path).map(|dir| dir.join("protoc")).find(|file| file.is_file())?;
    protoc.parent()?.join("../include/google/protobuf/descriptor.proto").exists().then_some(protoc)
}
