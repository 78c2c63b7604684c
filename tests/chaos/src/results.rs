//! Results: all runs that are kept, as `RESULTS.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use etcd_locked_devkit::Result;

use crate::checker::VERSION;
use crate::history::Event;
use crate::options::{Who, word};
use crate::plot;
use crate::report::{Report, longest};

/// Where the figures of single runs are, below the package's folder.
const RUNS: &str = "runs";
/// The line of the page below which everything is written anew; what is above is written by hand.
const FIGURES: &str = "## Runs\n";

/// Keeps the figures of a run below this folder, and draws it if it is one of all kinds. Only the same run, judged again, takes their
/// place.
pub(crate) fn keep(folder: &Path, report: &Report, events: &[Event]) -> Result<()> {
    let io = |error: std::io::Error| format!("{}: {error}", folder.display());
    let run = &report.run;
    let text = serde_json::to_string(report).map_err(|error| error.to_string())?;
    fs::write(folder.join(RUNS).join(run.id() + ".json"), text + "\n").map_err(io)?;
    if run.who == Who::Ours && run.mix == "all" && report.error.is_empty() {
        let svg = plot::draw(events).map_err(|error| error.to_string())?;
        fs::write(folder.join("plot.svg"), svg).map_err(io)?;
    }
    Ok(())
}

/// Writes the figures anew, from all runs that are kept below this folder.
pub(crate) fn write(folder: &Path) -> Result<()> {
    let page = folder.join("RESULTS.md");
    let io = |error: std::io::Error| format!("{}: {error}", page.display());
    let text = fs::read_to_string(&page).map_err(io)?;
    let (by_hand, _) = text.split_once(FIGURES).unwrap_or((&text, ""));
    fs::write(&page, by_hand.to_owned() + &figures(&kept(folder)?)).map_err(io)
}

/// Reads the figures of all runs that are kept below this folder, which this version of the checker must have judged.
pub(crate) fn kept(folder: &Path) -> Result<Vec<Report>> {
    let runs = folder.join(RUNS);
    let io = |error: std::io::Error| format!("{}: {error}", runs.display());
    fs::create_dir_all(&runs).map_err(io)?;
    let mut reports = BTreeMap::new();
    for entry in fs::read_dir(&runs).map_err(io)?.flatten() {
        let file = entry.path();
        let text = fs::read_to_string(&file).map_err(io)?;
        let report: Report =
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        if report.checker != VERSION {
            return Err(format!(
                "{}: not judged by version {VERSION} of the checker; judge its history again, or remove it",
                file.display()
            ));
        }
        reports.insert(file, report);
    }
    Ok(reports.into_values().collect())
}

/// The part of the page with figures.
fn figures(reports: &[Report]) -> String {
    let mut groups: BTreeMap<(Who, String, &str, String), Report> = BTreeMap::new();
    let mut ours = Report::default();
    let (ended, failed): (Vec<&Report>, Vec<&Report>) =
        reports.iter().partition(|report| report.error.is_empty());
    for report in ended {
        let run = &report.run;
        let who = match run.client.as_str() {
            "" => word(run.who),
            client => format!("{} ({client})", word(run.who)),
        };
        let mix = match &run.only[..] {
            [] => run.mix.clone(),
            only => format!("{}, only {}", run.mix, only.join(", ")),
        };
        groups.entry((run.who, who, run.etcd.as_str(), mix)).or_default().add(report);
        if run.who == Who::Ours {
            ours.add(report);
        }
    }
    // The sentence that README and the book quote.
    let mut text = format!(
        "{FIGURES}\n\
         **In short:** {:.1} hours, {} calls, {} faults, {} violations. {} overlaps do not count, because etcd itself had removed the\n\
         holder's key; the longest took {:.0} ms ([Measured](#measured)). Three members on one machine, no fsync.\n\n\
         | who | etcd | mix | minutes | calls | served | faults | violations |\n\
         |---|---|---|---:|---:|---:|---:|---|\n",
        ours.seconds / 3_600.0,
        ours.calls("asked"),
        ours.faults(),
        ours.violations.values().sum::<usize>(),
        ours.removed().count(),
        longest(ours.removed()) * 1e3,
    );
    for ((_, who, etcd, mix), sum) in &groups {
        let broken = sum.violations.iter().map(|(breach, many)| format!("{many} {breach}"));
        let broken = match Vec::from_iter(broken).join(", ") {
            none if none.is_empty() => "0".to_owned(),
            broken => broken,
        };
        let (minutes, asked, served) =
            (sum.seconds / 60.0, sum.calls("asked"), sum.calls("served"));
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {who} | {etcd} | {mix} | {minutes:.0} | {asked} | {served} | {} | {broken} |",
            sum.faults(),
        );
    }
    let many = failed.len();
    let _ = writeln!(text, "\n{many} more ended before their time, and are in no figure here.");
    for Report { run, error, .. } in failed {
        let (who, etcd, mix, seed) = (word(run.who), &run.etcd, &run.mix, run.seed);
        let _ = writeln!(text, "- {who} on etcd {etcd}, mix {mix}, seed {seed}: {error}");
    }
    text += &format!(
        "\n## Faults, and how long until every hot name was served again in every worker\n\n{}\n\
         ## Calls\n\n{}\n\
         ## Measured\n\n{}\n\
         ![waits over time, with the faults](plot.svg)\n",
        ours.faults_text(),
        ours.kinds_text(),
        ours.measured_text()
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Run;

    #[test]
    fn peers_stand_below_us_with_their_violations() {
        let report = |who, overlaps, error: &str| {
            let run = Run { who, etcd: "3.5.16".to_owned(), ..Run::default() };
            let mut report = Report { run, seconds: 1_800.0, ..Report::default() };
            report.error = error.to_owned();
            if overlaps > 0 {
                report.violations.insert("overlap".to_owned(), overlaps);
            }
            report
        };
        let runs =
            [(Who::Go, 3, ""), (Who::Ours, 0, ""), (Who::Ours, 0, ""), (Who::Ours, 1, "no leader")];
        let text = figures(&runs.map(|(who, overlaps, error)| report(who, overlaps, error)));
        let ours = text.find("| etcd-locked | 3.5.16 |  | 60 | 0 | 0 | 0 | 0 |");
        let peer = text.find("| go | 3.5.16 |  | 30 | 0 | 0 | 0 | 3 overlap |");
        assert!(ours.is_some() && ours < peer, "{text}");
        // A run that ended before its time is told, and in no figure.
        assert!(text.contains("\n1 more ended before") && text.contains("seed 0: no leader"));
    }
}
