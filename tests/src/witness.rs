//! Witnesses of exclusion: directories in which processes see how many of them hold a lock at once.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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

/// Witness of a limited number of holders: a directory that all processes of a test share.
#[derive(Debug, Clone)]
pub struct Crowd {
    dir: PathBuf,
}

impl Crowd {
    /// Makes the crowd of this directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Enters, stays 100 ms, and leaves. Returns the greatest number of holders that it saw inside.
    pub async fn visit(&self) -> io::Result<usize> {
        static VISITS: AtomicU64 = AtomicU64::new(0);
        let visit = VISITS.fetch_add(1, Ordering::Relaxed);
        let sign = self.dir.join(format!("{}-{visit}", std::process::id()));
        fs::write(&sign, "")?;
        let before = self.inside()?;
        tokio::time::sleep(Duration::from_millis(100)).await;
        let after = self.inside()?;
        fs::remove_file(sign)?;
        Ok(before.max(after))
    }

    fn inside(&self) -> io::Result<usize> {
        Ok(fs::read_dir(&self.dir)?.count())
    }
}
