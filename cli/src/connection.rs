//! Connection to etcd, as the library makes it.

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use etcd_locked::etcd_client::{Client, GetOptions};
use etcd_locked::{Config, LockError, LockName, Locks, Queue};
use etcd_locked_core::session_root;
use futures_util::future::select_ok;
use tokio::time::timeout;

use crate::failure::Failure;
use crate::options::Etcd;
use crate::output::say;

/// Time limit of one request.
static PATIENCE: OnceLock<Duration> = OnceLock::new();

/// Engine without locks, and the options by which it reaches etcd.
#[derive(Debug)]
pub(crate) struct Connection<'a> {
    etcd: &'a Etcd,
    pub(crate) locks: Locks,
    pub(crate) prefix: String,
    /// True if results are printed as JSON, one object per line.
    pub(crate) json: bool,
}

impl<'a> Connection<'a> {
    /// Reads options and environment. The first request connects. The environment may name another service.
    pub(crate) fn new(etcd: &'a Etcd, service: &str, json: bool) -> Result<Self, Failure> {
        Config::check_variables()?;
        let _ = PATIENCE.set(etcd.command_timeout); // a process makes one connection
        Ok(Self {
            etcd,
            json,
            locks: engine(etcd, service, None)?,
            prefix: value(etcd, "ETCD_LOCKED_PREFIX").unwrap_or_else(|| "locks/".to_owned()),
        })
    }

    /// Returns the contenders of a name; if there are none, prints that. Refuses a name that no service can lock.
    pub(crate) async fn queue(&self, name: &str) -> Result<Option<Queue>, Failure> {
        let queue = answer(self.locks.queue(name)).await?;
        if queue.is_none() {
            if name.lock_name().text().is_none() {
                let like = "write it as `ls` shows it, such as orders/7";
                return Err(Failure::Usage(format!("`{name}` is not a name: {like}")));
            }
            let prefix = &self.prefix;
            // A key is a valid name too, but not the name that the user meant.
            if let Some(below) = name.strip_prefix(prefix).filter(|below| !below.is_empty()) {
                say(format_args!(
                    "write a name without the prefix `{prefix}`: did you mean `{below}`?"
                ));
            }
            say(format_args!("`{name}` is free: no process holds it or waits for it"));
        }
        Ok(queue)
    }

    /// Returns the prefix of the keys that request a holder's lock (rule P40).
    pub(crate) fn kick_root(&self) -> String {
        session_root(&self.prefix) + "kick/"
    }

    /// Returns a client of the endpoint that responds first, for a few requests. A client of all endpoints may send a request to a
    /// member that is down or silent; its outcome would be unknown.
    pub(crate) async fn client(&self) -> Result<Client, Failure> {
        let asking = self.each()?.into_iter().map(|(_, locks)| {
            Box::pin(async move {
                let mut client = locks.client().await?;
                let read = GetOptions::new().with_keys_only();
                match answer(client.get(&*self.prefix, Some(read))).await {
                    Ok(_) | Err(Failure::Denied(_)) => Ok(client),
                    Err(failure) => Err(failure),
                }
            })
        });
        let (client, _) = select_ok(asking).await?;
        Ok(client)
    }

    /// Returns the endpoints, each with a separate client.
    pub(crate) fn each(&self) -> Result<Vec<(String, Locks)>, Failure> {
        let all = value(self.etcd, ENDPOINTS).unwrap_or_default();
        let each = all.split(',').map(str::trim);
        each.map(|it| Ok((it.to_owned(), engine(self.etcd, "etcd-locked", Some(it))?))).collect()
    }
}

/// Makes an engine of one endpoint, or of all. The environment may name another service.
fn engine(etcd: &Etcd, service: &str, endpoint: Option<&str>) -> Result<Locks, Failure> {
    let config = Config::from_lookup(|variable| match variable {
        ENDPOINTS if endpoint.is_some() => endpoint.map(str::to_owned),
        "ETCD_LOCKED_SERVICE" => value(etcd, variable).or_else(|| Some(service.to_owned())),
        _ => value(etcd, variable),
    });
    let config = config.map_err(|error| worded(etcd, error))?;
    Ok(Locks::connect_lazy(config)?)
}

const ENDPOINTS: &str = "ETCD_LOCKED_ENDPOINTS";

/// Lists the options that override variables.
fn options(etcd: &Etcd) -> [(&'static str, &'static str, &Option<String>); 9] {
    [
        (ENDPOINTS, "--endpoints", &etcd.endpoints),
        ("ETCD_LOCKED_PREFIX", "--prefix", &etcd.prefix),
        ("ETCD_LOCKED_CACERT", "--cacert", &etcd.cacert),
        ("ETCD_LOCKED_CERT", "--cert", &etcd.cert),
        ("ETCD_LOCKED_KEY", "--key", &etcd.key),
        ("ETCD_LOCKED_USER", "--user", &etcd.user),
        ("ETCD_LOCKED_CONNECT_TIMEOUT", "--dial-timeout", &etcd.dial_timeout),
        ("ETCD_LOCKED_TTL", "--ttl", &etcd.ttl),
        ("ETCD_LOCKED_WAIT", "--wait", &etcd.wait),
    ]
}

/// Returns the value of a variable: that of its option, else of the environment, else of etcdctl's variable.
pub(crate) fn value(etcd: &Etcd, variable: &str) -> Option<String> {
    let option = options(etcd).into_iter().find(|(of, ..)| *of == variable);
    let given = option.and_then(|(_, _, given)| given.clone());
    given.or_else(|| set(variable)).or_else(|| etcdctl(etcd, variable))
}

fn set(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|value| !value.is_empty())
}

/// Returns the value that etcdctl would use. Its certificates do not matter if every endpoint is `http://`.
fn etcdctl(etcd: &Etcd, variable: &str) -> Option<String> {
    let name = variable.strip_prefix("ETCD_LOCKED_")?;
    let is_plain = |all: String| all.split(',').all(|it| it.trim().starts_with("http://"));
    match name {
        "ENDPOINTS" => {}
        "USER" if set("ETCD_LOCKED_PASSWORD_FILE").is_none() => {}
        "CACERT" | "CERT" | "KEY" if !value(etcd, ENDPOINTS).is_some_and(is_plain) => {}
        _ => return None,
    }
    let theirs = set(&format!("ETCDCTL_{name}"))?;
    match set("ETCDCTL_PASSWORD") {
        Some(password) if name == "USER" && !theirs.contains(':') => {
            Some(format!("{theirs}:{password}"))
        }
        _ => Some(theirs),
    }
}

/// Rewords a configuration error, which names variables, for a user who gave options.
fn worded(etcd: &Etcd, error: LockError) -> Failure {
    if let LockError::NotInitialized { .. } = error {
        return Failure::Usage(
            "no etcd endpoint is configured: set --endpoints or ETCD_LOCKED_ENDPOINTS".to_owned(),
        );
    }
    let mut text = error.to_string();
    for (variable, option, given) in options(etcd) {
        let name = match given {
            Some(_) => option.to_owned(),
            None if set(variable).is_some() || etcdctl(etcd, variable).is_none() => continue,
            None => variable.replace("ETCD_LOCKED", "ETCDCTL"),
        };
        text = text.replace(&format!("`{variable}`"), &format!("`{name}`"));
    }
    Failure::Usage(text)
}

/// Waits for etcd's response, at most for the time limit.
pub(crate) async fn answer<T, E: Into<Failure>>(
    request: impl Future<Output = Result<T, E>>,
) -> Result<T, Failure> {
    let patience = *PATIENCE.get().unwrap_or(&Duration::MAX);
    match timeout(patience, request).await {
        Ok(answer) => answer.map_err(Into::into),
        Err(_) => Err(Failure::Etcd(format!("etcd does not answer within {patience:?}"))),
    }
}
