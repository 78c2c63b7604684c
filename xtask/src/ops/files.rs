//! Files of `ops/`: the queries of the dashboard, and the alerts in a version for a test of minutes.

use std::path::PathBuf;

use serde_json::Value;

use crate::{Result, workspace};

/// How much shorter the times of the alerts are in the test than in production.
const SHORTER: u64 = 30;
/// The least range of a query: a rate needs samples, and there is one each second.
const LEAST_RANGE: u64 = 4;
/// What Grafana puts for `$__rate_interval`, of a data source that scrapes each second.
const RATE_INTERVAL: &str = "10s";

/// Returns the path of a file of `ops/`.
pub(crate) fn path(name: &str) -> PathBuf {
    workspace::root().join("ops").join(name)
}

fn read(name: &str) -> Result<String> {
    workspace::read(path(name))
}

/// Query of the dashboard, with the title of its panel.
#[derive(Debug)]
pub(crate) struct Query {
    pub(crate) title: String,
    pub(crate) expression: String,
}

/// Variable of the dashboard: the values that a label has in some series.
#[derive(Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) series: String,
    pub(crate) label: String,
}

/// The dashboard, as far as it asks Prometheus.
#[derive(Debug)]
pub(crate) struct Dashboard {
    pub(crate) queries: Vec<Query>,
    pub(crate) variables: Vec<Variable>,
}

impl Dashboard {
    /// Reads it, with every variable set to all of its values.
    pub(crate) fn read() -> Result<Self> {
        let text = read("grafana.json")?;
        let dashboard: Value =
            serde_json::from_str(&text).map_err(|error| format!("ops/grafana.json: {error}"))?;
        let listed = list(&dashboard["templating"], "list");
        let mut variables = Vec::new();
        for variable in listed.filter(|variable| variable["type"] == "query") {
            variables.push(Self::variable(variable)?);
        }
        let all: Vec<_> = variables.iter().map(|it| it.name.clone()).collect();
        let mut queries = Vec::new();
        for panel in list(&dashboard, "panels") {
            for target in list(panel, "targets") {
                let title = text_of(panel, "title")?;
                queries.push(Query {
                    expression: substituted(&text_of(target, "expr")?, &all)
                        .map_err(|error| format!("panel `{title}`: {error}"))?,
                    title,
                });
            }
        }
        if queries.is_empty() || variables.is_empty() {
            return Err("ops/grafana.json has no queries or no variables".to_owned());
        }
        Ok(Self { queries, variables })
    }

    fn variable(variable: &Value) -> Result<Variable> {
        let name = text_of(variable, "name")?;
        let query = text_of(&variable["query"], "query")?;
        // `$job` stands for all of its values here.
        let parts = query
            .strip_prefix("label_values(")
            .and_then(|rest| rest.strip_suffix(')')?.rsplit_once(", "));
        let (series, label) =
            parts.ok_or_else(|| format!("variable `{name}`: `{query}` is no label_values"))?;
        Ok(Variable {
            series: substituted(series, &["job".to_owned()])?,
            label: label.to_owned(),
            name,
        })
    }
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value[field].as_array().into_iter().flatten()
}

fn text_of(value: &Value, field: &str) -> Result<String> {
    let text = value[field].as_str().map(str::to_owned);
    text.ok_or_else(|| format!("ops/grafana.json: no text `{field}` in {value}"))
}

/// Puts a pattern that matches everything for the variables, and an interval for Grafana's own.
fn substituted(query: &str, variables: &[String]) -> Result<String> {
    let mut query = query.replace("$__rate_interval", RATE_INTERVAL);
    for variable in variables {
        query = query.replace(&format!("\"${variable}\""), "\".*\"");
    }
    match query.contains('$') {
        true => Err(format!("`{query}` has a variable that the dashboard lacks")),
        false => Ok(query),
    }
}

/// Returns the alerts with all times shortened, so that a test need not wait for ten minutes.
pub(crate) fn short_alerts() -> Result<String> {
    let mut short = String::new();
    for line in read("alerts.yml")?.lines() {
        let limit = line.trim_start().strip_prefix("for: ");
        short += &match limit {
            Some(time) => line.replace(time, &shortened(time, 1)?),
            None => ranges_shortened(line)?,
        };
        short.push('\n');
    }
    Ok(short)
}

/// Shortens the ranges of a query, such as `[5m]`.
fn ranges_shortened(line: &str) -> Result<String> {
    let mut parts = line.split('[');
    let mut short = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        short.push('[');
        short += &match part.split_once(']') {
            Some((range, rest)) if range.starts_with(|it: char| it.is_ascii_digit()) => {
                format!("{}]{rest}", shortened(range, LEAST_RANGE)?)
            }
            _ => part.to_owned(),
        };
    }
    Ok(short)
}

fn shortened(time: &str, least: u64) -> Result<String> {
    let seconds = match (time.strip_suffix('m'), time.strip_suffix('s')) {
        (Some(minutes), _) => minutes.parse().map(|minutes: u64| minutes * 60),
        (_, Some(seconds)) => seconds.parse(),
        _ => return Err(format!("ops/alerts.yml: `{time}` is in neither m nor s")),
    };
    let seconds = seconds.map_err(|error| format!("ops/alerts.yml: `{time}`: {error}"))?;
    Ok(format!("{}s", seconds.div_ceil(SHORTER).max(least)))
}

#[cfg(test)]
mod tests {
    use super::{Dashboard, ranges_shortened, read, short_alerts, shortened, substituted};
    use crate::workspace;

    /// The number that follows this text, of each place where it occurs.
    fn numbers(text: &str, before: &str) -> Vec<u64> {
        let after = text.split(before).skip(1);
        let digits = after.map(|it| it.split(|it: char| !it.is_ascii_digit()).next());
        digits.filter_map(|it| it?.parse().ok()).collect()
    }

    #[test]
    fn every_alert_is_explained_and_fires_in_a_test() {
        let (alerts, tests) = (read("alerts.yml"), read("alerts_test.yml"));
        let (alerts, tests) = (alerts.expect("alerts"), tests.expect("tests"));
        let parts: Vec<_> = alerts.split("- alert: ").skip(1).collect();
        assert!(!parts.is_empty());
        for alert in parts {
            let name = alert.lines().next().unwrap_or_default();
            let fires = format!("ALERTS{{alertname=\"{name}\", alertstate=\"firing\"");
            assert!(tests.contains(&fires), "no series on which {name} fires");
            for text in ["summary: ", "meaning: ", "action: ", "severity: "] {
                assert!(alert.contains(text), "{name} has no {text}");
            }
        }
    }

    #[test]
    fn a_pod_has_the_time_that_the_shop_needs_to_end() {
        let signals = workspace::root().join("examples/services/signals.rs");
        let signals = workspace::read(signals).expect("the shop's times");
        let pod = read("kubernetes/shop.yaml").expect("a pod");
        let needs = numbers(&signals, "Duration::from_secs(");
        assert_eq!(needs.len(), 3, "grace, notice and last answers");
        let sleeps = numbers(&pod, "sleep: { seconds: ");
        assert_eq!(sleeps.len(), 1, "preStop");
        let has = numbers(&pod, "\n      terminationGracePeriodSeconds: ");
        let needs: u64 = needs.iter().chain(&sleeps).sum();
        assert!(has.iter().any(|has| *has > needs), "{has:?} for {needs} s");
    }

    #[test]
    fn shortens_ranges_and_leaves_other_brackets() {
        let short = ranges_shortened("rate(x[5m]) + y[1m] # `#[a]`, `[b]`");
        assert_eq!(short, Ok("rate(x[10s]) + y[4s] # `#[a]`, `[b]`".to_owned()));
        assert_eq!(shortened("30s", 1), Ok("1s".to_owned()));
        assert!(shortened("1h", 1).is_err());
    }

    #[test]
    fn refuses_variables_that_the_dashboard_lacks() {
        let job = ["job".to_owned()];
        let query = "x{job=~\"$job\"}[$__rate_interval]";
        assert_eq!(substituted(query, &job), Ok("x{job=~\".*\"}[10s]".to_owned()));
        assert!(substituted("x{lock=~\"$lock\"}", &job).is_err());
    }

    #[test]
    fn dashboard_and_alerts_can_be_read() {
        let dashboard = Dashboard::read().expect("a dashboard");
        let names: Vec<_> = dashboard.variables.iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["job", "instance", "lock"]);
        let alerts = short_alerts().expect("alerts");
        assert!(!alerts.contains("5m]"), "{alerts}");
    }
}
