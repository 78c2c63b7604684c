//! Witness of exclusion: a directory that shows whether two processes hold a lock at once.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::PathBuf;

/// Witness of an exclusive lock: a directory that all tasks and processes of a test share.
#[derive(Debug, Clone)]
pub struct Witness {
    dir: PathBuf,
}

impl Witness {
    /// Makes the witness of this directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Enters, counts one visit, and leaves.
    ///
    /// Two signs show a broken exclusion. Another holder inside is an error here; two visits that read the same count
    /// are counted once.
    pub async fn visit(&self) -> io::Result<()> {
        let door = self.dir.join("inside");
        OpenOptions::new().write(true).create_new(true).open(&door)?;
        let before = self.count()?;
        tokio::task::yield_now().await;
        fs::write(self.dir.join("count"), (before + 1).to_string())?;
        fs::remove_file(&door)
    }

    /// Returns the number of counted visits.
    pub fn count(&self) -> io::Result<u64> {
        match fs::read_to_string(self.dir.join("count")) {
            Ok(text) => text.parse().map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        }
    }
}
