//! Wake-ups of processes: how often their threads had gone to sleep by themselves, and ran again.

use std::collections::BTreeMap;
use std::fs;

use crate::Result;

/// The counts of all threads, by process and thread.
pub(crate) struct Wakeups(BTreeMap<(u32, u32), u64>);

impl Wakeups {
    /// Reads the counts of these processes.
    pub(crate) fn of(processes: &[u32]) -> Result<Self> {
        let mut counts = BTreeMap::new();
        for process in processes {
            let folder = format!("/proc/{process}/task");
            let failed = |error: std::io::Error| format!("{folder}: {error}");
            for thread in fs::read_dir(&folder).map_err(failed)?.flatten() {
                let number = thread.file_name().to_string_lossy().parse();
                // A thread that has just ended has no count.
                let status = fs::read_to_string(thread.path().join("status"));
                if let (Ok(number), Ok(status)) = (number, status) {
                    let count = count(&status).ok_or("/proc does not tell wake-ups")?;
                    counts.insert((*process, number), count);
                }
            }
        }
        Ok(Self(counts))
    }

    /// How many there were since `before`, but for those of threads that have ended.
    pub(crate) fn since(&self, before: &Self) -> u64 {
        let counts = self.0.iter();
        counts
            .map(|(thread, count)| count.saturating_sub(*before.0.get(thread).unwrap_or(&0)))
            .sum()
    }
}

/// The count in a thread's `status`.
fn count(status: &str) -> Option<u64> {
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sleeps_of_a_thread_itself_count() {
        let status =
            "Threads:\t3\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";
        assert_eq!(count(status), Some(150));
        assert_eq!(count("Threads:\t3\n"), None);
    }

    #[test]
    fn new_threads_count_from_their_beginning() {
        let wakeups = |counts: &[((u32, u32), u64)]| Wakeups(counts.iter().copied().collect());
        let before = wakeups(&[((1, 1), 10), ((1, 2), 5)]);
        let after = wakeups(&[((1, 1), 14), ((1, 3), 7)]);
        assert_eq!(after.since(&before), 11);
    }
}
