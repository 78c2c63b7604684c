//! Results page `RESULTS.md`, written from all runs that are kept.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use etcd_locked_devkit::Result;

use crate::checker::VERSION;
use crate::options::{Who, word};
use crate::report::{Report, longest};

/// Folder of the figures of single runs, below the package's folder.
const RUNS: &str = "runs";
/// Line of the page below which everything is generated; the text above it is written by hand.
const FIGURES: &str = "## Runs\n";

/// Saves the figures of a run below this folder, unless it ended early.
pub(crate) fn keep(folder: &Path, report: &Report) -> Result<()> {
    if !report.error.is_empty() {
        return Ok(());
    }
    let text = serde_json::to_string(report).map_err(|error| error.to_string())?;
    let file = folder.join(RUNS).join(report.run.id() + ".json");
    fs::write(&file, text + "\n").map_err(|error| format!("{}: {error}", file.display()))
}

/// Rewrites the figures, from all runs that are kept below this folder.
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

fn figures(reports: &[Report]) -> String {
    let mut groups: BTreeMap<(Who, String, &str, String), Report> = BTreeMap::new();
    let mut ours = Report::default();
    for report in reports {
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
    // README and the book quote this sentence.
    let mut text = format!(
        "{FIGURES}\n\
         **In short:** {:.1} hours, {} calls, {} faults, {} violations. {} overlaps do not count, because etcd itself had removed the\n\
         holder's key; the longest took {:.0} ms ([Measured](#measured)). Three members on one machine, no fsync.\n\n\
         | who | etcd | mix | minutes | calls | served | faults | violations |\n\
         |---|---|---|---:|---:|---:|---:|---|\n",
        ours.seconds / 3_600.0,
        ours.calls,
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
        let Report { calls, served, .. } = sum;
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {who} | {etcd} | {mix} | {:.0} | {calls} | {served} | {} | {broken} |",
            sum.seconds / 60.0,
            sum.faults(),
        );
    }
    text += &format!(
        "\n## Faults, and how long until every hot name was served again in every worker\n\n{}\n\
         ## Measured\n\n{}",
        ours.faults_text(),
        ours.measured_text()
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_two_checkers_do_not_add_up() {
        let folder = std::env::temp_dir().join(format!("chaos-{}", std::process::id()));
        fs::create_dir_all(folder.join(RUNS)).expect("a folder");
        let old = Report { checker: VERSION - 1, ..Report::default() };
        let old = serde_json::to_string(&old).expect("a report");
        fs::write(folder.join(RUNS).join("old.json"), old).expect("a run");
        let refused = kept(&folder).expect_err("a refusal");
        fs::remove_dir_all(&folder).expect("a folder of its own");
        assert!(refused.contains("old.json"), "{refused}");
    }
}
