//! Row `ops`, the files of `examples/ops`: promtool checks the alerts and runs their unit tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(file(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
#[ignore = "needs promtool; run `cargo xtask examples ops`, which brings it"]
fn alerts_fire_on_their_faults_alone() {
    let program = std::env::var_os("PROMTOOL").unwrap_or("promtool".into());
    for args in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]] {
        let ended = Command::new(&program).args(args).current_dir(file("ops")).status();
        let ended = ended.unwrap_or_else(|error| panic!("promtool: {error}"));
        assert!(ended.success(), "promtool {args:?}: {ended}");
    }
}

#[test]
fn each_alert_is_explained_and_has_a_test() {
    let (alerts, tests) = (read("ops/alerts.yml"), read("ops/alerts_test.yml"));
    for alert in alerts.split("- alert: ").skip(1) {
        let name = alert.lines().next().unwrap_or_default();
        let fires = format!("ALERTS{{alertname=\"{name}\", alertstate=\"firing\"");
        assert!(tests.contains(&fires), "no series on which {name} fires");
        for text in ["summary: ", "meaning: ", "action: ", "severity: "] {
            assert!(alert.contains(text), "{name} has no {text}");
        }
    }
}

#[test]
fn dashboard_and_alerts_use_metrics_that_exist() {
    let metrics = read("../runtime/src/metrics.rs");
    let used: BTreeSet<String> = ["ops/alerts.yml", "ops/grafana.json"]
        .into_iter()
        .flat_map(|path| {
            let text = read(path);
            let names = text.split(|it: char| !it.is_ascii_lowercase() && it != '_');
            let ours = names.filter(|name| name.starts_with("etcd_locked_"));
            ours.map(|name| name.trim_end_matches("_bucket").trim_end_matches("_count").to_owned())
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(!used.is_empty());
    for name in used {
        assert!(metrics.contains(&format!("\"{name}\"")), "there is no metric {name}");
    }
}
