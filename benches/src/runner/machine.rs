//! Machine on which the figures were measured.

use std::env;
use std::fs;
use std::io::Write;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit, setrlimit};

use super::figures::{Spread, time};
use crate::Result;
use crate::process::output;

/// Raises the limit of open files, because hundreds of workers need more pipes than some machines allow by default.
pub(crate) fn allow_many_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If that is not allowed, the rows with many processes report it.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Returns the share of processor time that other programs use now. Call it while none of our processes runs.
pub(crate) fn busy() -> Result<f64> {
    let (idle, all) = processor_times()?;
    thread::sleep(Duration::from_millis(700));
    let (idle_then, all_then) = processor_times()?;
    let (idle, all) = (idle_then - idle, all_then - all);
    Ok(if all > 0.0 { 1.0 - idle / all } else { 0.0 })
}

/// Returns the idle ticks and all ticks since the machine started.
fn processor_times() -> Result<(f64, f64)> {
    let stat = fs::read_to_string("/proc/stat").map_err(|e| format!("/proc/stat: {e}"))?;
    let line = stat.lines().next().unwrap_or_default();
    let ticks: Vec<f64> =
        line.split_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
    match ticks.get(3..5) {
        // The last two, of guests, are already part of the first two.
        Some([idle, waiting]) => Ok((idle + waiting, ticks.iter().take(8).sum())),
        _ => Err("/proc/stat does not tell the processors' times".to_owned()),
    }
}

/// Describes processors, versions, disk and load in a sentence.
pub(crate) fn described() -> Result<String> {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find(|line| line.starts_with("model name"))
        .and_then(|line| line.split_once(": "))
        .map_or(String::new(), |(_, model)| format!(" ({})", model.trim()));
    let mut asked = Command::new(etcd_locked_devkit::binary::etcd());
    // etcd 3.4 requires this on arm64, and ignores it elsewhere.
    asked.arg("--version").env("ETCD_UNSUPPORTED_ARCH", "arm64");
    let etcd = output(&mut asked)?;
    let etcd = etcd.lines().next().unwrap_or_default().replace("etcd Version:", "etcd");
    let of = |variable| env::var(variable).map_or(String::new(), |version| format!(", {version}"));
    let (rustc, go) = (of("BENCH_RUSTC"), of("BENCH_GO"));
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let loads = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let (load, _) = loads.split_once(' ').unwrap_or_default();
    Ok(format!(
        "{processors} processors{model}, etcd on the same machine; {etcd}{rustc}{go}; {}; load average {load} at the start",
        disk()?
    ))
}

/// Describes where etcd keeps its data, and what a synced write costs there.
fn disk() -> Result<String> {
    let folder = env::temp_dir();
    let io = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mounts = fs::read_to_string("/proc/mounts").map_err(io)?;
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let around = mounts.filter(|(at, _)| folder.starts_with(at));
    let (_, system) = around.max_by_key(|(at, _)| at.len()).unwrap_or(("/", "a disk"));
    let mut file = tempfile::tempfile_in(&folder).map_err(io)?;
    let mut times = Vec::new();
    for _ in 0..200 {
        let from = Instant::now();
        file.write_all(&[0; 512]).and_then(|()| file.sync_data()).map_err(io)?;
        times.push(from.elapsed().as_secs_f64());
    }
    let median = Spread::of(&times)?.median;
    Ok(format!(
        "etcd's data on {system}, where `fdatasync` of 512 bytes takes {} (median)",
        time(median)
    ))
}
