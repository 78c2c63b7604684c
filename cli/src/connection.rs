//! Connection to etcd, as the library makes it.

use std::future::Future;
use std::time::Duration;

use etcd_locked::etcd_client::{self, Client};
use etcd_locked::{Config, Locks, Queue};
use tokio::time::timeout;

use crate::failure::Failure;
use crate::options::Etcd;
use crate::say;

/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// An engine without any lock, and how to reach etcd.
#[derive(Debug)]
pub(crate) struct Connection<'a> {
    etcd: &'a Etcd,
    pub(crate) locks: Locks,
    pub(crate) prefix: String,
}

impl<'a> Connection<'a> {
    /// Reads options and environment; connects when something is asked.
    pub(crate) fn new(etcd: &'a Etcd) -> Result<Self, Failure> {
        Self::of(etcd, "etcd-locked".to_owned())
    }

    /// Does the same, as this service, unless the environment names another.
    #[cfg(target_os = "linux")]
    pub(crate) fn as_service(etcd: &'a Etcd, service: String) -> Result<Self, Failure> {
        let named = value(etcd, "ETCD_LOCKED_SERVICE");
        Self::of(etcd, named.unwrap_or(service))
    }

    fn of(etcd: &'a Etcd, service: String) -> Result<Self, Failure> {
        let config = Config::from_lookup(|variable| value(etcd, variable))?;
        Ok(Self {
            etcd,
            locks: Locks::connect_lazy(config.service(service))?,
            prefix: value(etcd, "ETCD_LOCKED_PREFIX").unwrap_or_else(|| "locks/".to_owned()),
        })
    }

    /// The contenders of a name; says so if there are none.
    pub(crate) async fn queue(&self, name: &str) -> Result<Option<Queue>, Failure> {
        let queue = self.locks.queue(name).await?;
        if queue.is_none() {
            say(format_args!(
                "`{name}` is free: no process holds it or waits for it"
            ));
        }
        Ok(queue)
    }

    /// A client over all endpoints.
    pub(crate) async fn client(&self) -> Result<Client, Failure> {
        Ok(self.locks.client().await?)
    }

    /// The endpoints, each with a client of its own.
    pub(crate) fn each(&self) -> Result<Vec<(String, Locks)>, Failure> {
        let all = value(self.etcd, ENDPOINTS).or_else(|| value(self.etcd, "ETCDCTL_ENDPOINTS"));
        let all = all.unwrap_or_default();
        let each = all.split(',').map(|endpoint| {
            let endpoint = endpoint.trim().to_owned();
            let alone = |variable: &str| match variable {
                ENDPOINTS => Some(endpoint.clone()),
                other => value(self.etcd, other),
            };
            let locks = Locks::connect_lazy(Config::from_lookup(alone)?)?;
            Ok((endpoint, locks))
        });
        each.collect()
    }
}

const ENDPOINTS: &str = "ETCD_LOCKED_ENDPOINTS";

/// The value of a variable: an option stands for it, else the environment has it.
fn value(etcd: &Etcd, variable: &str) -> Option<String> {
    let option = match variable {
        ENDPOINTS => &etcd.endpoints,
        "ETCD_LOCKED_PREFIX" => &etcd.prefix,
        "ETCD_LOCKED_CACERT" => &etcd.cacert,
        "ETCD_LOCKED_CERT" => &etcd.cert,
        "ETCD_LOCKED_KEY" => &etcd.key,
        "ETCD_LOCKED_USER" => &etcd.user,
        _ => &None,
    };
    let set = || {
        std::env::var(variable)
            .ok()
            .filter(|value| !value.is_empty())
    };
    option.clone().or_else(set)
}

/// Waits for an answer of etcd, not for ever.
pub(crate) async fn answer<T>(
    request: impl Future<Output = Result<T, etcd_client::Error>>,
) -> Result<T, Failure> {
    match timeout(PATIENCE, request).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Failure::Etcd(format!(
            "etcd does not answer within {PATIENCE:?}"
        ))),
    }
}
