use std::fs::{self, OpenOptions};
use std::io;
use std::path::PathBuf;

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
