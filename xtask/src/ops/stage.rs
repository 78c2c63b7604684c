//! Stage of the faults: an etcd, two processes of the shop, and a Prometheus that scrapes them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use etcd_locked_devkit::{Cluster, Setup, until};
use tempfile::TempDir;

use super::files::{self, Dashboard};
use super::prometheus::{Prometheus, Rule, Tools};
use super::shop::{ARTICLE, Shop};
use crate::etcd::Etcd;
use crate::process::output;
use crate::{Result, say, workspace};

/// How long a query may have no data under load.
const PATIENCE: Duration = Duration::from_secs(60);

/// The user of the shop, and its password.
const USER: (&str, &str) = ("shop", "secret");

/// The name of the snapshot of etcd.
const SNAPSHOT: &str = "snapshot";

/// What the faults are played on.
#[derive(Debug)]
pub(super) struct Stage {
    // In the order in which a failed run drops them.
    pub(super) prometheus: Prometheus,
    pub(super) first: Shop,
    pub(super) second: Shop,
    pub(super) etcd: Cluster,
    /// The shop's database, and a snapshot of etcd from before the first lock.
    place: TempDir,
}

impl Stage {
    pub(super) fn start(tools: &Tools, etcd: &Etcd, executable: &Path) -> Result<Self> {
        let place = tempfile::tempdir().map_err(|error| format!("no place: {error}"))?;
        let setup = Setup::default().binary(&etcd.server).direct();
        let mut cluster = Cluster::start_with(1, setup)?;
        grant(etcd, &cluster)?;
        cluster.enable_auth("operator", "operator", &["locks/"])?;
        for member in cluster.members() {
            member.snapshot(&place.path().join(SNAPSHOT))?;
        }
        let password = place.path().join("password");
        workspace::write(&password, USER.1)?;
        let variables = [
            ("ETCD_LOCKED_ENDPOINTS", cluster.endpoints().join(",")),
            ("ETCD_LOCKED_USER", USER.0.to_owned()),
            ("ETCD_LOCKED_PASSWORD_FILE", password.display().to_string()),
        ];
        let shop = || Shop::start(executable, &place.path().join("shop.db"), &variables);
        let (first, second) = (shop()?, shop()?);
        first.restock(ARTICLE)?;
        for path in ["/live", "/ready", "/metrics"] {
            if first.status(path) != 200 {
                return Err(format!("the shop has no {path}, which ops/kubernetes asks for"));
            }
        }
        let targets = [first.address, second.address];
        Ok(Self {
            prometheus: tools.start(&files::short_alerts()?, &targets)?,
            first,
            second,
            etcd: cluster,
            place,
        })
    }

    /// Returns the snapshot of etcd from before the first lock.
    pub(super) fn snapshot(&self) -> PathBuf {
        self.place.path().join(SNAPSHOT)
    }

    /// Stops the shop as an orchestrator would.
    pub(super) fn end(self) -> Result<()> {
        self.first.stop()?;
        self.second.stop()
    }

    pub(super) fn shops(&self) -> [&Shop; 2] {
        [&self.first, &self.second]
    }

    /// Waits until every query of the dashboard has data. Returns the alerts whose value has none at that moment.
    pub(super) fn every_query_has_data(
        &self,
        dashboard: &Dashboard,
        rules: &[Rule],
    ) -> Result<Vec<String>> {
        for variable in &dashboard.variables {
            let what = format!("values of the variable `{}`", variable.name);
            self.data(&what, || {
                let values = self.prometheus.values(&variable.label, &variable.series)?;
                Ok(!values.is_empty())
            })?;
        }
        for query in &dashboard.queries {
            let what = format!("data of the panel `{}`: {}", query.title, query.expression);
            self.data(&what, || self.has_data(&query.expression))?;
        }
        say::note(format_args!("{} queries have data", dashboard.queries.len()));
        let mut without = Vec::new();
        for rule in rules {
            let limit = rule.expression.rsplit_once(" > ");
            let limit = limit.or_else(|| rule.expression.rsplit_once(" < "));
            let (value, _) = limit.ok_or_else(|| {
                format!("{}: no limit at the end of `{}`", rule.name, rule.expression)
            })?;
            if !self.has_data(value)? {
                without.push(rule.name.clone());
            }
        }
        say::note(format_args!("{} alerts have values", rules.len() - without.len()));
        Ok(without)
    }

    fn has_data(&self, expression: &str) -> Result<bool> {
        let numbers = self.prometheus.query(expression)?;
        Ok(numbers.iter().any(|number| number.is_finite()))
    }

    /// Waits for data; an error of the question ends the wait.
    fn data(&self, what: &str, mut has: impl FnMut() -> Result<bool>) -> Result<()> {
        let mut failed = None;
        until(what, PATIENCE, || match has() {
            Ok(has) => has,
            Err(error) => {
                failed = Some(format!("{what}: {error}"));
                true
            }
        })?;
        failed.map_or(Ok(()), Err)
    }
}

/// Creates the shop's user by the script that operators use, with its rights and no other.
fn grant(etcd: &Etcd, cluster: &Cluster) -> Result<()> {
    let mut path = etcd.ctl.parent().map(Path::as_os_str).unwrap_or_default().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut script = Command::new("sh");
    script
        .arg(files::path("kubernetes/etcd-role.sh"))
        .args([USER.0, "locks/"])
        .env("PATH", path)
        .env("ETCDCTL_API", "3")
        .env("ETCDCTL_ENDPOINTS", cluster.endpoints().join(","))
        .env("PASSWORD", USER.1)
        .stdin(Stdio::null());
    output(&mut script).map(drop)
}
