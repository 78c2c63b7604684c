//! The witness of exclusion: counters that lose something if two count at a time.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// One counter a name: in this process, or in a file for several processes.
#[derive(Debug)]
pub(super) struct Witness {
    counters: Vec<AtomicU64>,
    file: Option<File>,
}

impl Witness {
    pub(super) fn new(names: u64, file: Option<&Path>) -> io::Result<Self> {
        let open = |file| OpenOptions::new().read(true).write(true).open(file);
        Ok(Self {
            counters: (0..names).map(|_| AtomicU64::new(0)).collect(),
            file: file.map(open).transpose()?,
        })
    }

    /// Reads, and writes one more: no atomic addition, on purpose.
    pub(super) fn enter(&self, name: u64) -> io::Result<()> {
        let Some(file) = &self.file else {
            if let Some(counter) = self.counters.get(name as usize) {
                counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
            return Ok(());
        };
        let mut seen = [0; 8];
        file.read_exact_at(&mut seen, name * 8)?;
        let more = u64::from_le_bytes(seen) + 1;
        file.write_all_at(&more.to_le_bytes(), name * 8)
    }

    /// The sum of what was counted in this process since the last time.
    pub(super) fn take(&self) -> u64 {
        self.counters
            .iter()
            .map(|counter| counter.swap(0, Ordering::Relaxed))
            .sum()
    }
}
