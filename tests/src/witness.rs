use std::fs::{self, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Sees whether two holders are inside at once: a directory that all tasks and processes of a test share.
#[derive(Debug, Clone)]
pub struct Witness {
    dir: PathBuf,
}

impl Witness {
    /// The witness that looks at this directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Goes in, counts one, goes out.
    ///
    /// Two signs of a broken exclusion: somebody else inside is an error here, and a count that was read by two
    /// loses one of them.
    pub async fn visit(&self) -> io::Result<()> {
        let door = self.dir.join("inside");
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&door)?;
        let before = self.count()?;
        tokio::task::yield_now().await;
        fs::write(self.dir.join("count"), (before + 1).to_string())?;
        fs::remove_file(&door)
    }

    /// How many visits have been counted.
    pub fn count(&self) -> io::Result<u64> {
        match fs::read_to_string(self.dir.join("count")) {
            Ok(text) => text.parse().map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        }
    }
}

/// Sees how many are inside at once: a directory that all processes of a test share.
#[derive(Debug, Clone)]
pub struct Crowd {
    dir: PathBuf,
}

impl Crowd {
    /// The crowd in this directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Goes in, stays a little, and goes out; answers the most that were inside meanwhile.
    pub async fn visit(&self) -> io::Result<usize> {
        static VISITS: AtomicU64 = AtomicU64::new(0);
        let visit = VISITS.fetch_add(1, Ordering::Relaxed);
        let sign = self.dir.join(format!("{}-{visit}", std::process::id()));
        fs::write(&sign, "")?;
        let before = self.inside()?;
        tokio::time::sleep(Duration::from_millis(30)).await;
        let after = self.inside()?;
        fs::remove_file(sign)?;
        Ok(before.max(after))
    }

    fn inside(&self) -> io::Result<usize> {
        Ok(fs::read_dir(&self.dir)?.count())
    }
}
