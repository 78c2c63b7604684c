//! `xtask pulse`: the command that `xtask exec` runs under a lock. Its file says when it began and when it last ran.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::Pid;
use rustix::time::{ClockId, clock_gettime};

use crate::Result;

/// Time between two beats.
const BEAT: Duration = Duration::from_millis(1);

/// Digits of a time in a file.
const DIGITS: usize = 20;

/// What a process of a command has written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pulse {
    pub(super) pid: Pid,
    pub(super) begun: u64,
    pub(super) last: u64,
}

/// Writes the time into a file of its own, for so many milliseconds; with a child that does the same, if `pair`.
pub(crate) fn beat(folder: &Path, millis: u64, pair: bool) -> Result<()> {
    let failed = |error| format!("pulse: {error}");
    let child = match pair {
        false => None,
        true => {
            let own = std::env::current_exe().map_err(failed)?;
            let mut child = Command::new(own);
            child.arg("pulse").arg(folder).arg(millis.to_string());
            Some(child.spawn().map_err(failed)?)
        }
    };
    let place = folder.join(std::process::id().to_string());
    let hidden = place.with_extension("new");
    let file = File::create(&hidden).map_err(failed)?;
    let begun = now();
    let write = |time: u64, at: usize| {
        let text = format!("{time:0DIGITS$}");
        file.write_all_at(text.as_bytes(), at as u64).map_err(failed)
    };
    write(begun, 0)?;
    write(begun, DIGITS)?;
    fs::rename(&hidden, &place).map_err(failed)?;
    while now() < begun + millis * 1_000_000 {
        write(now(), DIGITS)?;
        thread::sleep(BEAT);
    }
    if let Some(mut child) = child {
        child.wait().map_err(failed)?;
    }
    Ok(())
}

/// Reads what the processes of a command have written into a folder.
pub(super) fn read(folder: &Path) -> Vec<Pulse> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let pulses = files.filter_map(|file| {
        let pid = file.file_name().to_str()?.parse().ok()?;
        let text = fs::read_to_string(file.path()).ok()?;
        Some(Pulse {
            pid: Pid::from_raw(pid)?,
            begun: text.get(..DIGITS)?.parse().ok()?,
            last: text.get(DIGITS..)?.parse().ok()?,
        })
    });
    pulses.collect()
}

/// Now, in nanoseconds of the boot clock, which all processes of the machine share.
pub(super) fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let part = |it: i64| u64::try_from(it).unwrap_or(0);
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}
