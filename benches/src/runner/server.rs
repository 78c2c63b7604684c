//! Server for one row: a fresh etcd with its data on disk, as in production. Dropping it deletes the data.

use etcd_locked_devkit::{Member, Setup, http};

use crate::Result;

/// Returns the setup of each etcd.
pub(crate) fn setup() -> Setup {
    Setup::default().durable().flags([
        "--auto-compaction-mode=revision",
        "--auto-compaction-retention=10000",
        // It compacts every five minutes. At full speed, five minutes need more than the default of 2 GiB.
        "--quota-backend-bytes=17179869184",
    ])
}

#[derive(Debug)]
pub(crate) struct Server(Member);

impl Server {
    pub(crate) fn start() -> Result<Self> {
        setup().start().map(Self)
    }

    pub(crate) fn endpoint(&self) -> String {
        self.0.endpoint()
    }

    /// Returns etcd's counter of this name with this label; 0 if there is none yet.
    pub(crate) fn metric(&self, name: &str, label: &str) -> Result<f64> {
        let page = http::get(self.0.direct(), "/metrics")?;
        if page.status != 200 {
            return Err(format!("etcd answers {} to /metrics", page.status));
        }
        let lines = page.body.lines().filter_map(|line| line.strip_prefix(name));
        let lines = lines.filter(|rest| rest.starts_with(['{', ' ']) && rest.contains(label));
        let values = lines.map(|rest| rest.rsplit_once(' ')?.1.parse::<f64>().ok());
        let sum = values.sum::<Option<f64>>();
        sum.ok_or_else(|| format!("etcd's metric {name} is not a number"))
    }
}
