//! Results: all runs that are kept, as `RESULTS.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use etcd_locked_devkit::Result;

use crate::checker::verdicts::Breach;
use crate::history::{Event, Run};
use crate::plot;
use crate::report::{Report, kinds, recoveries};

/// Where the figures of single runs are, below the package's folder.
const RUNS: &str = "runs";
/// The name under which the library itself runs.
pub(crate) const OURS: &str = "etcd-locked";

/// Who the peers are.
const PEERS: &str = "\nThe peers make exclusive calls only, each task under a lease of its own. A body stops once its client says that the lease is \
                     gone; etcdctl never does.\n`go` is `concurrency.Mutex` of etcd's own Go client, as the distribution has it; `lock-service` is \
                     etcd's lock service by etcd-client,\nwith a task that renews; `aetcd` is its lock, renewed every third of the TTL, on one \
                     endpoint; `etcdctl` is `etcdctl lock`\nwith a command, which is the body: etcdctl lets it run to its end.\n";

/// Keeps the figures of a run below this folder, draws it if it is one of all kinds, and writes the results anew.
pub(crate) fn keep(folder: &Path, report: &Report, events: &[Event]) -> Result<()> {
    let runs = folder.join(RUNS);
    let io = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&runs).map_err(io)?;
    let run = &report.run;
    let file = runs.join(file_of(run));
    let text = serde_json::to_string(report).map_err(|error| error.to_string())?;
    fs::write(file, text + "\n").map_err(io)?;
    if run.who == OURS && run.mix == "all" {
        fs::write(folder.join("plot.svg"), plot::draw(events)).map_err(io)?;
    }
    let mut reports = Vec::new();
    for entry in fs::read_dir(&runs).map_err(io)?.flatten() {
        let text = fs::read_to_string(entry.path()).map_err(io)?;
        let report: Report = serde_json::from_str(&text)
            .map_err(|error| format!("{}: {error}", entry.path().display()))?;
        reports.push(report);
    }
    fs::write(folder.join("RESULTS.md"), text_of(&reports)).map_err(io)
}

/// The file of a run's figures.
fn file_of(run: &Run) -> String {
    let mut file = format!("{}-{}-{}-{}", run.who, run.etcd, run.mix, run.seed);
    for kind in &run.only {
        file += &format!("-{}", kind.replace([' ', '/'], "_"));
    }
    file + ".json"
}

/// The page.
fn text_of(reports: &[Report]) -> String {
    let mut groups: BTreeMap<(bool, String, &str, String), (usize, Report)> = BTreeMap::new();
    let mut ours = Report::default();
    for report in reports {
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
         members, which asks every client who it is, and a nemesis disturbs workers, members and the connections between them. Each body tells a witness when it begins,\n\
         when it is polled and when it ends; a checker judges the history. `cargo xtask chaos --seed S` plays a schedule again.\n\n\
         ## Runs\n\n\
         | who | etcd | mix | runs | minutes | calls | served | faults | violations | of safety, an hour | others, an hour | overlaps | beyond the bound | keys left | stalls |\n\
         |---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
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
    text += "\n*Of safety* are overlaps, permits above their number, polls after a loss, tokens, writes of holders refused, groups partly held,\n\
             and retentions cut short. *Stalls* are times in which the machine did not run a process for over 200 ms.\n";
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
    text += "\n## Faults, and how long until every hot name was served again\n\n\
             Of all runs of ours. A member that was killed has healed once it serves again, a worker once it is started. Names whose locks a killed worker held\n\
             are served when its lease has run out, after two or ten seconds.\n\n";
    text += "*Measured* are faults that were alone, and healed before the next one began.\n\n";
    text += &recoveries(&ours.faults);
    text += "\n## Calls\n\nOf all runs of ours. *Served*: the body began. *Busy*: not within the wait.\n\n";
    text += &kinds(&ours.kinds);
    text += "\n## Measured\n\nNo violations, and worth knowing; of all runs of ours:\n\n";
    text += &ours.measured.text();
    text += "\n![calls and waits over time, with the faults](plot.svg)\n";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_stand_below_us_with_their_violations() {
        let report = |who: &str, overlaps| {
            let mut report = Report {
                run: Run {
                    who: who.to_owned(),
                    etcd: "3.5.16".to_owned(),
                    ..Run::default()
                },
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
