//! Results: all runs that are kept, as `RESULTS.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use etcd_locked_devkit::Result;
use serde::Deserialize;

use crate::checker::VERSION;
use crate::checker::verdicts::Breach;
use crate::history::Event;
use crate::plot;
use crate::report::{Report, kinds, recoveries};

/// Where the figures of single runs are, below the package's folder.
const RUNS: &str = "runs";
/// The name under which the library itself runs.
pub(crate) const OURS: &str = "etcd-locked";

/// Who the peers are.
const PEERS: &str = "\nThe peers make exclusive calls only, each task under a lease of its own. A body stops once its client says that the lease is \
                     gone; etcdctl never does.\n`go` is `concurrency.Mutex` of etcd's own Go client; `lock-service` is \
                     etcd's lock service by etcd-client,\nwith a task that renews; `aetcd` is its lock, renewed every third of the TTL, on one \
                     endpoint; `etcdctl` is `etcdctl lock`\nwith a command, which is the body: etcdctl lets it run to its end. Order is\njudged of ours only: peers promise none among \
                     the tasks of a process.\n";

/// Keeps the figures of a run below this folder, and draws it if it is one of all kinds. Only the same run, judged again, takes their
/// place.
pub(crate) fn keep(folder: &Path, report: &Report, events: &[Event]) -> Result<()> {
    let runs = folder.join(RUNS);
    let io = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&runs).map_err(io)?;
    let run = &report.run;
    let text = serde_json::to_string(report).map_err(|error| error.to_string())?;
    fs::write(runs.join(run.id() + ".json"), text + "\n").map_err(io)?;
    if run.who == OURS && run.mix == "all" && report.error.is_empty() {
        let svg = plot::draw(events).map_err(|error| error.to_string())?;
        fs::write(folder.join("plot.svg"), svg).map_err(io)?;
    }
    Ok(())
}

/// Fails if runs are kept below this folder that another version of the checker has judged.
pub(crate) fn check(folder: &Path) -> Result<()> {
    kept(folder).map(drop)
}

/// Writes the results anew, from all runs that are kept below this folder.
pub(crate) fn write(folder: &Path) -> Result<()> {
    let page = folder.join("RESULTS.md");
    fs::write(&page, text_of(&kept(folder)?))
        .map_err(|error| format!("{}: {error}", page.display()))
}

/// Reads the figures of all runs that are kept below this folder.
fn kept(folder: &Path) -> Result<Vec<Report>> {
    let runs = folder.join(RUNS);
    let io = |error: std::io::Error| format!("{}: {error}", runs.display());
    fs::create_dir_all(&runs).map_err(io)?;
    let mut texts = BTreeMap::new();
    for entry in fs::read_dir(&runs).map_err(io)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        texts.insert(name, fs::read_to_string(entry.path()).map_err(io)?);
    }
    reports(&texts)
}

/// Reads the figures of runs, by the names of their files, which one version of the checker must have judged.
fn reports(texts: &BTreeMap<String, String>) -> Result<Vec<Report>> {
    /// What files of all versions have.
    #[derive(Deserialize)]
    struct Judged {
        #[serde(default)]
        checker: u32,
    }
    let wrong = |name: &str, error: serde_json::Error| format!("{name}: {error}");
    let mut old = Vec::new();
    for (name, text) in texts {
        let judged: Judged = serde_json::from_str(text).map_err(|error| wrong(name, error))?;
        if judged.checker != VERSION {
            old.push(name.as_str());
        }
    }
    if !old.is_empty() {
        return Err(format!(
            "these runs were not judged by version {VERSION} of the checker; judge their histories again, or remove them from \
             `{RUNS}`: {}",
            old.join(", ")
        ));
    }
    let texts = texts.iter();
    texts
        .map(|(name, text)| serde_json::from_str(text).map_err(|error| wrong(name, error)))
        .collect()
}

/// The page.
fn text_of(reports: &[Report]) -> String {
    let mut groups: BTreeMap<(bool, String, &str, String), (usize, Report)> = BTreeMap::new();
    let mut ours = Report::default();
    let (ended, failed): (Vec<&Report>, Vec<&Report>) =
        reports.iter().partition(|report| report.error.is_empty());
    for report in &ended {
        let run = &report.run;
        let who = match run.client.as_str() {
            "" => run.who.clone(),
            client => format!("{} ({client})", run.who),
        };
        let mix = match &run.only[..] {
            [] => run.mix.clone(),
            only => format!("{}, only {}", run.mix, only.join(", ")),
        };
        let group = (run.who != OURS, who, run.etcd.as_str(), mix);
        let (runs, sum) = groups.entry(group).or_default();
        *runs += 1;
        sum.add(report);
        if run.who == OURS {
            ours.add(report);
        }
    }
    let mut text = String::from(
        "# What torture has shown\n\n\
         Written by `cargo xtask chaos --write`, from the runs in `runs/`. Four worker processes make calls on a real cluster of three\n\
         members, as a user who is not root, and a *nemesis* injects faults into workers, members and the connections between them. Each\n\
         body tells a witness when it begins, when it is polled and when it ends; a checker judges the history. `cargo xtask chaos --seed S`\n\
         plays a schedule again.\n\n\
         All processes and all three members are on one machine with one clock. etcd keeps its data in memory and does not fsync.\n\
         The machine does other work too: times in which it did not run a process, or etcd, are noted, and explain what follows from them.\n\n\
         A *mix* says which calls the workers make: of `all` kinds, `exclusive` ones alone, and so on. *Hot* names are those that several\n\
         processes want all the time. The *bound* of a call is how long it may last by its own wait and the faults under way, and 3 s. *Beyond\n\
         the bound*, *keys left* (after all calls have ended) and *stalls* (times in which the machine did not run a process for over 200 ms)\n\
         are counted in columns of their own; the first two are violations too.\n\n\
         ## Runs\n\n\
         | who | etcd | mix | runs | minutes | calls | served | faults | violations | safety violations per hour | other violations per hour | overlaps | beyond the bound | keys left | stalls |\n\
         |---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    text.insert_str(text.find("## Runs").unwrap_or(0), &summary(&ours));
    for ((_, who, etcd, mix), (runs, sum)) in &groups {
        let an_hour = |many: usize| many as f64 * 3_600.0 / sum.seconds.max(1.0);
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {who} | {etcd} | {mix} | {runs} | {:.0} | {} | {} | {} | {} | {:.1} | {:.1} | {} | {} | {} | {} |",
            sum.seconds / 60.0,
            sum.calls(),
            sum.served(),
            sum.faults(),
            sum.violations(),
            an_hour(sum.unsafe_violations()),
            an_hour(sum.violations() - sum.unsafe_violations()),
            sum.broken(Breach::Overlap),
            sum.broken(Breach::Bound),
            sum.measured.left,
            sum.measured.stalls.len(),
        );
    }
    text += "\n*Safety violations* are overlaps, permits above their number, polls after a loss, tokens, writes of holders refused, groups partly held,\n\
             and retentions cut short.\n";
    let minutes = |report: &&Report| report.seconds / 60.0;
    let own = ended.iter().filter(|report| report.run.who == OURS);
    let shortest = ended.iter().map(minutes).fold(f64::INFINITY, f64::min);
    let _ = writeln!(
        text,
        "\nOurs took {:.1} hours in all; the shortest run on this page took {shortest:.1} minutes. All were judged by version {VERSION} of the\n\
         checker. {} more ended before their time, and are in no figure here.",
        own.map(minutes).sum::<f64>() / 60.0,
        failed.len()
    );
    for report in &failed {
        let run = &report.run;
        let _ = writeln!(
            text,
            "- {} on etcd {}, mix {}, seed {}: {}",
            run.who, run.etcd, run.mix, run.seed, report.error
        );
    }
    if groups.keys().any(|(peer, ..)| *peer) {
        text += PEERS;
    }
    if groups.values().any(|(_, sum)| sum.violations() > 0) {
        text += "\n## Violations\n\n| who | etcd | mix | what | times |\n|---|---|---|---|---:|\n";
        for ((_, who, etcd, mix), (_, sum)) in &groups {
            for (breach, many) in &sum.violations {
                let _ = writeln!(text, "| {who} | {etcd} | {mix} | {breach} | {many} |");
            }
        }
    }
    text += "\n## Faults, and how long until every hot name was served again in every worker\n\n\
             Of all runs of ours, the worker included that the fault has hit. A member that was killed has healed once it serves again, a worker once it is started. Names whose locks a killed worker held\n\
             are served when its lease has run out, after two or ten seconds.\n\n";
    text += "*Measured* are faults that were alone, and healed before the next one began.\n\n";
    text += "Of fewer than 100 there is no p99. *Member replaced* gives etcd a new member with a new address; the workers reach it by the address\n\
             of before. *No space* raises the alarm by hand, on a store that has space.\n\n";
    text += &recoveries(&ours.faults);
    text += "\n## Calls\n\nOf all runs of ours. *Served*: the body began; it may be lost or dropped after that. *Busy*: not within the wait.\n\
             *Refused*: an error at once or after a time-out, such as that etcd is out of reach. *Dropped*: by the caller.\n\n";
    text += &kinds(&ours.kinds);
    text += "\n## Measured\n\nWhat no client can prevent is no violation; how often and for how long it happened is worth knowing. Of all runs of ours:\n\n";
    text += &ours.measured.text();
    text += "\n![calls and waits over time, with the faults](plot.svg)\n";
    text
}

/// The figures that README and the book quote.
fn summary(ours: &Report) -> String {
    let removed = &ours.measured.removed;
    format!(
        "**In short:** {:.1} hours, {} calls, {} faults, {} violations. {} overlaps do not count, because etcd itself had removed the\n\
         holder's key; the longest took {:.0} ms ([Measured](#measured)). Three members on one machine, no fsync.\n\n",
        ours.seconds / 3_600.0,
        ours.calls(),
        ours.faults(),
        ours.violations(),
        removed.len(),
        removed.iter().max().map_or(0.0, |most| *most as f64 / 1e6),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Run;

    #[test]
    fn runs_of_two_checkers_do_not_add_up() {
        let text = |checker| {
            let report = Report { checker, ..Report::default() };
            serde_json::to_string(&report).expect("a report")
        };
        let texts = |old: String| {
            let files = [("new.json", text(VERSION)), ("old.json", old)];
            BTreeMap::from(files.map(|(name, text)| (name.to_owned(), text)))
        };
        assert_eq!(reports(&texts(text(VERSION))).map(|all| all.len()), Ok(2));
        for old in [text(VERSION - 1), "{}".to_owned()] {
            let refused = reports(&texts(old)).expect_err("a refusal");
            assert!(refused.ends_with(": old.json"), "{refused}");
        }
    }

    #[test]
    fn a_run_that_ended_before_its_time_is_told() {
        let report = Report { error: "no leader".to_owned(), seconds: 600.0, ..Report::default() };
        let text = text_of(&[report]);
        assert!(text.contains(" 1 more ended before"), "{text}");
        assert!(text.contains("seed 0: no leader"), "{text}");
        assert!(!text.contains("| 10 |"), "{text}");
    }

    #[test]
    fn peers_stand_below_us_with_their_violations() {
        let report = |who: &str, overlaps| {
            let mut report = Report {
                run: Run { who: who.to_owned(), etcd: "3.5.16".to_owned(), ..Run::default() },
                seconds: 1_800.0,
                ..Report::default()
            };
            if overlaps > 0 {
                report.violations.insert("overlap".to_owned(), overlaps);
            }
            report
        };
        let text = text_of(&[report("another", 3), report(OURS, 0), report(OURS, 0)]);
        let ours = text.find("| etcd-locked | 3.5.16 |  | 2 | 60 | 0 | 0 | 0 | 0 | 0.0 | 0.0 |");
        let peer = text.find("| another | 3.5.16 |  | 1 | 30 | 0 | 0 | 0 | 3 | 6.0 | 0.0 | 3 |");
        assert!(ours.is_some() && ours < peer, "{text}");
        assert!(text.contains("| another | 3.5.16 |  | overlap | 3 |"));
    }
}
