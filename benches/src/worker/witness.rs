//! Witness of exclusion: counters that lose counts if two calls count at the same time.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// One counter per name: in this process, or in a file for several processes, each followed by the process that was there last.
#[derive(Debug)]
pub(super) struct Witness {
    counters: Vec<AtomicU64>,
    file: Option<File>,
    /// Calls that came after one of another process.
    changes: AtomicU64,
}

impl Witness {
    pub(super) fn new(names: u64, file: Option<&Path>) -> io::Result<Self> {
        let open = |file| OpenOptions::new().read(true).write(true).open(file);
        Ok(Self {
            counters: (0..names).map(|_| AtomicU64::new(0)).collect(),
            file: file.map(open).transpose()?,
            changes: AtomicU64::new(0),
        })
    }

    /// Reads the counter, and writes one more, on purpose without an atomic addition.
    pub(super) fn enter(&self, name: u64) -> io::Result<()> {
        let Some(file) = &self.file else {
            if let Some(counter) = self.counters.get(name as usize) {
                counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
            return Ok(());
        };
        let mut seen = [[0; 8]; 2];
        file.read_exact_at(seen.as_flattened_mut(), name * 16)?;
        let [count, last] = seen.map(u64::from_le_bytes);
        let me = u64::from(std::process::id());
        if last != me {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
        let seen = [count + 1, me].map(u64::to_le_bytes);
        file.write_all_at(seen.as_flattened(), name * 16)
    }

    /// Returns the count in this process since the last time, and how many calls came after one of another process.
    pub(super) fn take(&self) -> (u64, u64) {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        (self.counters.iter().map(take).sum(), take(&self.changes))
    }
}
