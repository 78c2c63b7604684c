//! etcd of the demo: the user's own where the environment names one, else an embedded one.

use std::env;
use std::fmt;
use std::path::Path;
use std::process::Command;

use crate::process::{Printed, Process};
use crate::{Result, say};

/// Package and binary of the embedded etcd.
pub(crate) const EMBEDDED: (&str, &str) = ("etcd-locked-embedded", "etcd-locked-embedded");

/// Variables that name an etcd; the first that is set counts.
const VARIABLES: [&str; 2] = ["ETCD_LOCKED_ENDPOINTS", "ETCDCTL_ENDPOINTS"];

/// Variables of credentials. The order service's plain client, which it uses for the shop's data, does not read them.
const CREDENTIALS: [&str; 9] = [
    "ETCD_LOCKED_USER",
    "ETCD_LOCKED_PASSWORD_FILE",
    "ETCD_LOCKED_CACERT",
    "ETCD_LOCKED_CERT",
    "ETCD_LOCKED_KEY",
    "ETCDCTL_USER",
    "ETCDCTL_CACERT",
    "ETCDCTL_CERT",
    "ETCDCTL_KEY",
];

/// Which etcd to use.
#[derive(Debug)]
pub(crate) enum Choice {
    /// The etcd at these endpoints.
    Given(String),
    /// An embedded etcd that the demo starts.
    Embedded,
}

impl Choice {
    /// Reads the choice from the environment. Without one, it is an embedded etcd, and a note says so.
    pub(crate) fn from_environment() -> Result<Self> {
        let given = VARIABLES.into_iter().find_map(|variable| {
            let endpoints = env::var(variable).ok()?;
            (!endpoints.is_empty()).then_some((variable, endpoints))
        });
        let Some((variable, endpoints)) = given else {
            say::note("no ETCDCTL_ENDPOINTS: the demo runs on an embedded etcd of its own");
            return Ok(Self::Embedded);
        };
        if endpoints == "embedded" {
            return Ok(Self::Embedded);
        }
        match CREDENTIALS
            .into_iter()
            .find(|name| env::var_os(name).is_some())
        {
            None => Ok(Self::Given(endpoints)),
            Some(credential) => Err(format!(
                "the demo has no credentials for {variable}={endpoints}, and {credential} is set; \
                 unset {variable} to run it on an embedded etcd"
            )),
        }
    }
}

/// An etcd for the demo.
#[derive(Debug)]
pub(crate) struct Cluster {
    endpoints: String,
    /// The embedded etcd, which ends when dropped, and its output, kept open.
    embedded: Option<(Process, Printed)>,
}

impl Cluster {
    pub(crate) fn given(endpoints: String) -> Self {
        Self {
            endpoints,
            embedded: None,
        }
    }

    /// Starts the executable of an embedded etcd. It listens on TCP, because the services are processes.
    pub(crate) fn embedded(executable: &Path) -> Result<Self> {
        let mut command = Command::new(executable);
        command.args(["--listen", "127.0.0.1:0"]);
        let (process, address, printed) = Process::listening("the embedded etcd", &mut command)?;
        Ok(Self {
            endpoints: format!("http://{address}"),
            embedded: Some((process, printed)),
        })
    }

    /// Returns the value for `ETCD_LOCKED_ENDPOINTS`.
    pub(crate) fn endpoints(&self) -> &str {
        &self.endpoints
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.embedded {
            Some(_) => "an embedded etcd",
            None => "the etcd",
        };
        write!(out, "{what} at {}", self.endpoints)
    }
}
