//! Prometheus: the distribution's, brought below `target/tools`, and a process of it that scrapes each second.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use etcd_locked_devkit::{http, port, until};
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Process, output};
use crate::{Result, apt, etcd, say, workspace};

/// How long it may take to serve.
const READY: Duration = Duration::from_secs(30);

/// Executables of Prometheus.
#[derive(Debug)]
pub(crate) struct Tools {
    prometheus: PathBuf,
    promtool: PathBuf,
}

impl Tools {
    /// Finds them in PATH, else below `target/tools`, else unpacks the distribution's package there.
    pub(crate) fn find() -> Result<Self> {
        let installed = etcd::in_path("prometheus").zip(etcd::in_path("promtool"));
        let home = workspace::tools().join("prometheus");
        let brought = Self { prometheus: home.join("prometheus"), promtool: home.join("promtool") };
        match installed {
            Some((prometheus, promtool)) => {
                return Ok(Self {
                    prometheus,
                    promtool,
                });
            }
            None if brought.prometheus.is_file() && brought.promtool.is_file() => {}
            None => brought.bring(&home).map_err(|error| {
                format!("no prometheus on this machine, and none to be had: {error}; apt-get install prometheus")
            })?,
        }
        Ok(brought)
    }

    fn bring(&self, home: &std::path::Path) -> Result<()> {
        say::note(format_args!(
            "bringing prometheus from the distribution's package, into {}",
            home.display()
        ));
        let io = workspace::failed_at(home);
        fs::create_dir_all(home).map_err(io)?;
        let scratch = tempfile::tempdir_in(workspace::tools()).map_err(io)?;
        let bin = apt::distribution(scratch.path(), &["prometheus"])?;
        for tool in [&self.promtool, &self.prometheus] {
            fs::rename(bin.join(tool.file_name().unwrap_or_default()), tool).map_err(io)?;
        }
        Ok(())
    }

    /// Runs promtool, whose error is what it found.
    pub(crate) fn check(&self, args: &[&str], file: &std::path::Path) -> Result<()> {
        let mut promtool = Command::new(&self.promtool);
        let done = promtool.args(args).arg(file).stdin(Stdio::null()).output();
        let done = done.map_err(|error| format!("promtool does not start: {error}"))?;
        match done.status.success() {
            true => Ok(()),
            false => Err(format!(
                "promtool {} {}:\n{}{}",
                args.join(" "),
                file.display(),
                String::from_utf8_lossy(&done.stdout),
                String::from_utf8_lossy(&done.stderr)
            )),
        }
    }

    /// Starts a Prometheus with these rules that scrapes these addresses each second; waits until it serves.
    pub(crate) fn start(&self, rules: &str, targets: &[SocketAddr]) -> Result<Prometheus> {
        let io = |error: std::io::Error| format!("no place for prometheus: {error}");
        let place = tempfile::tempdir().map_err(io)?;
        let file = |name: &str| place.path().join(name);
        let targets: Vec<_> = targets.iter().map(|it| format!("'{it}'")).collect();
        let config = format!(
            "global: {{ scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }}\n\
             rule_files: [alerts.yml]\n\
             scrape_configs:\n  - job_name: shop\n    static_configs: [{{ targets: [{}] }}]\n",
            targets.join(", ")
        );
        fs::write(file("alerts.yml"), rules).map_err(io)?;
        fs::write(file("prometheus.yml"), config).map_err(io)?;
        let log = fs::File::create(file("log")).map_err(io)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port::free()));
        let mut command = Command::new(&self.prometheus);
        command
            .arg(format!("--config.file={}", file("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", file("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=warn")
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(io)?)
            .stderr(log);
        let mut prometheus =
            Prometheus { process: Process::start("prometheus", &mut command)?, address, place };
        prometheus.ready()?;
        Ok(prometheus)
    }

    /// Returns its version, as it says it.
    pub(crate) fn version(&self) -> Result<String> {
        let said = output(Command::new(&self.prometheus).arg("--version"))?;
        let version = said.split_whitespace().nth(2);
        Ok(version.unwrap_or("of unknown version").to_owned())
    }
}

/// A Prometheus; ended when dropped.
#[derive(Debug)]
pub(crate) struct Prometheus {
    process: Process,
    address: SocketAddr,
    // The last, because a running one would recreate its files.
    place: TempDir,
}

/// Alert as Prometheus has read it from its rules.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) name: String,
    pub(crate) expression: String,
}

/// Alert that fires.
#[derive(Debug, Clone)]
pub(crate) struct Firing {
    pub(crate) name: String,
    /// Its labels and annotations, as JSON.
    pub(crate) text: String,
}

impl Prometheus {
    fn ready(&mut self) -> Result<()> {
        let mut ended = None;
        let served = until("prometheus serves", READY, || {
            ended = self.process.ended().transpose();
            ended.is_some() || http::get(self.address, "/-/ready").is_ok_and(|it| it.status == 200)
        });
        let log = fs::read_to_string(self.place.path().join("log")).unwrap_or_default();
        match ended {
            Some(_) => Err(format!("prometheus has ended:\n{log}")),
            None => served.map_err(|error| format!("{error}:\n{log}")),
        }
    }

    fn ask(&self, path: &str) -> Result<Value> {
        let answer = http::get(self.address, &format!("/api/v1/{path}"))?;
        let value: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        match answer.status {
            200 => Ok(value["data"].clone()),
            status => Err(format!("prometheus: {status} {}", answer.body)),
        }
    }

    /// Returns the numbers that a query has now, of all its series.
    pub(crate) fn query(&self, expression: &str) -> Result<Vec<f64>> {
        let answer = self.ask(&format!("query?query={}", encoded(expression)))?;
        let series = answer["result"].as_array().into_iter().flatten();
        let numbers = series.filter_map(|it| it.pointer("/value/1")?.as_str()?.parse().ok());
        Ok(numbers.collect())
    }

    /// Returns the values of a label in these series.
    pub(crate) fn values(&self, label: &str, series: &str) -> Result<Vec<String>> {
        let path = format!("label/{label}/values?match[]={}", encoded(series));
        let answer = self.ask(&path)?;
        let values = answer.as_array().into_iter().flatten();
        Ok(values.filter_map(|it| it.as_str().map(str::to_owned)).collect())
    }

    /// Returns all alerts of its rules.
    pub(crate) fn rules(&self) -> Result<Vec<Rule>> {
        let answer = self.ask("rules")?;
        let groups = answer["groups"].as_array().into_iter().flatten();
        let rules = groups.filter_map(|group| group["rules"].as_array());
        let rules = rules.flatten().filter_map(|rule| {
            Some(Rule {
                name: rule["name"].as_str()?.to_owned(),
                expression: rule["query"].as_str()?.to_owned(),
            })
        });
        Ok(rules.collect())
    }

    /// Returns the alerts that fire now.
    pub(crate) fn firing(&self) -> Result<Vec<Firing>> {
        let answer = self.ask("alerts")?;
        let alerts = answer["alerts"].as_array().into_iter().flatten();
        let firing = alerts.filter(|alert| alert["state"] == "firing");
        let firing = firing.filter_map(|alert| {
            Some(Firing {
                name: alert.pointer("/labels/alertname")?.as_str()?.to_owned(),
                text: format!("{} {}", alert["labels"], alert["annotations"]),
            })
        });
        Ok(firing.collect())
    }
}

/// Encodes a query for a URL.
fn encoded(query: &str) -> String {
    query.bytes().fold(String::new(), |mut url, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => url.push(byte.into()),
            _ => _ = write!(url, "%{byte:02X}"),
        }
        url
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn encodes_what_a_url_gives_a_meaning() {
        assert_eq!(super::encoded("a{b=\"c d\"}"), "a%7Bb%3D%22c%20d%22%7D");
    }
}
