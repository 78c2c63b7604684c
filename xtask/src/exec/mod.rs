//! `cargo xtask exec`: shows whether the command of one process still runs when that of another begins, ours and `etcdctl lock`'s.
//!
//! Rounds are played in lanes at once. The faults of a tool take turns, so each meets the machine as it is at all times.

mod pulse;
mod round;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use etcd_locked_devkit::Setup;

pub(crate) use self::pulse::beat;
use self::round::{Fault, Place, Seen, Tool};
use crate::etcd::Etcd;
use crate::options::Rounds;
use crate::{Result, lanes, say, workspace};

/// The page, below the workspace's root.
const PAGE: &str = "cli/EXEC.md";

/// A round that is to be played.
#[derive(Debug)]
struct Job {
    tool: Tool,
    fault: Fault,
}

/// Plays the rounds, and prints the table; `--write` writes the page.
pub(crate) fn exec(times: usize, rounds: &Rounds) -> Result<String> {
    let lanes = rounds.lanes.get();
    let etcd = rounds.asked.find()?;
    say::step("building etcd-locked");
    let [ours] = workspace::build(&[], [("etcd-locked-cli", "etcd-locked")])?;
    let jobs = jobs(times, &Tool::Ours(ours), &Tool::Etcdctl(etcd.ctl.clone()));
    say::step(format_args!("{} rounds, {lanes} at once", jobs.len()));
    let begun = Instant::now();
    let results = play(&etcd, &jobs, lanes)?;
    let table = table(&jobs, &results);
    let failed: Vec<&String> = results.iter().filter_map(|it| it.as_ref().err()).collect();
    for failure in &failed {
        eprintln!("   {failure}");
    }
    println!("{table}");
    let overlaps = count(&jobs, &results, |job, seen| {
        matches!(job.tool, Tool::Ours(_)) && job.fault != Fault::Freeze && is_overlap(seen)
    });
    if overlaps > 0 {
        return Err(format!(
            "{overlaps} times the command of `etcd-locked exec` ran when the next had begun"
        ));
    }
    if !failed.is_empty() {
        return Err(format!("{} rounds came to no end", failed.len()));
    }
    if rounds.write {
        workspace::write(workspace::root().join(PAGE), page(&etcd, &table))?;
    }
    Ok(format!(
        "exec: ok — no overlap in {times} rounds on etcd {}, in {:.0} s",
        etcd.version,
        begun.elapsed().as_secs_f64()
    ))
}

/// The rounds: of ours so many, and a tenth of that with all stopped; of etcdctl a tenth, and as many with all stopped.
fn jobs(times: usize, ours: &Tool, etcdctl: &Tool) -> Vec<Job> {
    let apart = [Fault::Partition, Fault::Stop, Fault::Kill];
    let mut jobs = Vec::new();
    for n in 0..times {
        let mut add = |tool: &Tool, fault| {
            let tool = tool.clone();
            jobs.push(Job { tool, fault });
        };
        add(ours, apart[n % 3]);
        // A tenth of the rounds, and each fault as often as the others.
        if n % 10 == 0 {
            add(etcdctl, apart[n / 10 % 3]);
            add(ours, Fault::Freeze);
            add(etcdctl, Fault::Freeze);
        }
    }
    jobs
}

/// Plays all rounds; the results are in their order.
fn play(etcd: &Etcd, jobs: &[Job], lanes: usize) -> Result<Vec<Result<Seen>>> {
    let member = Setup::default().binary(&etcd.server).start()?;
    let scratch = tempfile::tempdir().map_err(|error| format!("a scratch directory: {error}"))?;
    let place = Place { etcd: &member, folder: scratch.path() };
    lanes::play(jobs, lanes, |_: &mut (), job, number| {
        let seen = place.play(&job.tool, job.fault, number);
        seen.map_err(|error| format!("{}, {}: {error}", job.tool, job.fault))
    })
}

fn is_overlap(seen: &Seen) -> bool {
    seen.overlap > 0 || seen.lives
}

fn count(jobs: &[Job], results: &[Result<Seen>], is: impl Fn(&Job, &Seen) -> bool) -> usize {
    let both = jobs.iter().zip(results);
    both.filter(|(job, seen)| seen.as_ref().is_ok_and(|seen| is(job, seen))).count()
}

/// A row for each tool and fault.
fn table(jobs: &[Job], results: &[Result<Seen>]) -> String {
    let mut text = "\
| | fault | rounds | the first command ran when the next had begun | for: median, most | next begins after (median) |
|---|---|---|---|---|---|
"
    .to_owned();
    let mut rows: BTreeMap<(&Tool, Fault), Vec<&Seen>> = BTreeMap::new();
    for (job, seen) in jobs.iter().zip(results) {
        let row = rows.entry((&job.tool, job.fault)).or_default();
        row.extend(seen.as_ref().ok());
    }
    for ((tool, fault), seen) in rows {
        let overlaps = seen.iter().filter(|it| is_overlap(it)).count();
        let (usual, most) = median_and_most(seen.iter().map(|it| it.overlap));
        let longest = match (seen.iter().any(|it| it.lives), overlaps) {
            (true, _) => "to its own end".to_owned(),
            (false, 0) => "-".to_owned(),
            (false, _) => format!("{:.1} ms, {:.1} ms", usual * 1e3, most * 1e3),
        };
        let (median, _) = median_and_most(seen.iter().map(|it| it.waited));
        let rounds = seen.len();
        let row =
            format!("| `{tool}` | {fault} | {rounds} | {overlaps} | {longest} | {median:.1} s |");
        let _ = writeln!(text, "{row}");
    }
    text
}

/// Two of these times, in seconds.
fn median_and_most(nanos: impl Iterator<Item = u64>) -> (f64, f64) {
    let mut all: Vec<_> = nanos.map(|it| Duration::from_nanos(it).as_secs_f64()).collect();
    all.sort_unstable_by(f64::total_cmp);
    let median = all.get(all.len() / 2).copied().unwrap_or(0.0);
    (median, all.last().copied().unwrap_or(0.0))
}

fn page(etcd: &Etcd, table: &str) -> String {
    format!(
        "# Commands under a lock, and what goes wrong\n\n\
         Written by `cargo xtask exec --times N --write`, on etcd and etcdctl {}. In each round one process runs a command of two\n\
         processes under a lock with a TTL of 5 s, and meets a fault; another process waits for the same lock, to run its own. Both\n\
         commands note the time each millisecond, by one clock.\n\n\
         {table}\n\
         With \"all stopped, then continued\", command, guardian and `etcd-locked` (or command and `etcdctl`) are stopped until the\n\
         next command has begun; the time is how long the first command ran after that, before it was killed. A store that checks\n\
         `ETCD_LOCKED_TOKEN` refuses what it writes then.\n",
        etcd.version
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> [Tool; 2] {
        [Tool::Ours("ours".into()), Tool::Etcdctl("theirs".into())]
    }

    #[test]
    fn rounds_are_spread_over_tools_and_faults() {
        let [ours, theirs] = tools();
        let jobs = jobs(90, &ours, &theirs);
        let many = |of_ours: bool, fault| {
            let is =
                |job: &&Job| matches!(job.tool, Tool::Ours(_)) == of_ours && job.fault == fault;
            jobs.iter().filter(is).count()
        };
        for fault in [Fault::Partition, Fault::Stop, Fault::Kill] {
            assert_eq!((many(true, fault), many(false, fault)), (30, 3));
        }
        assert_eq!((many(true, Fault::Freeze), many(false, Fault::Freeze)), (9, 9));
    }

    #[test]
    fn table_counts_overlaps_and_not_what_failed() {
        let [ours, theirs] = tools();
        let job = |tool: &Tool| Job { tool: tool.clone(), fault: Fault::Stop };
        let seen = |overlap, lives| Ok(Seen { waited: 2_000_000_000, overlap, lives });
        let jobs = [job(&theirs), job(&ours), job(&ours), job(&ours)];
        let results =
            [seen(7, true), seen(0, false), seen(1_500_000, false), Err("no end".to_owned())];
        let table = table(&jobs, &results);
        let rows: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| `etcd-locked exec` | SIGSTOP | 2 | 1 | 1.5 ms, 1.5 ms | 2.0 s |",
                "| `etcdctl lock` | SIGSTOP | 1 | 1 | to its own end | 2.0 s |",
            ]
        );
    }
}
