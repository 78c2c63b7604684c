//! Checks of a configuration, whose errors say what is wrong and what to write instead.

use std::time::Duration;

#[cfg(feature = "tls")]
use super::credentials::Tls;
use super::{Config, check_endpoint};

/// Allowed TTLs: from etcd's minimum to the longest time for which a crashed holder may block others.
const TTL: std::ops::RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(300);

impl Config {
    /// Checks this configuration. The error says what is wrong, and what to write instead.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.endpoints.0.is_empty() && self.connector.is_none() {
            return Err("no endpoint: name at least one, e.g. `http://127.0.0.1:2379`".into());
        }
        for (endpoint, shown) in self.endpoints.0.iter().zip(self.endpoints.shown()) {
            check_endpoint(endpoint).map_err(|wrong| format!("endpoint `{shown}`: {wrong}"))?;
        }
        if self.source.provider.is_some()
            && !self.has_tls()
            && self.endpoints.0.iter().any(|it| !it.contains("://"))
        {
            return Err(
                "`credentials` may return certificates, so endpoints need their schemes: write `https://` or `http://`".into(),
            );
        }
        self.check_scheme()?;
        check_prefix(&self.prefix).map_err(|wrong| format!("prefix `{}`: {wrong}", self.prefix))?;
        check_ttl(self.ttl).map_err(|wrong| format!("ttl {:?}: {wrong}", self.ttl))?;
        if self.connect_timeout.is_zero() {
            return Err("connect_timeout is zero: set a positive time, e.g. 5 s".into());
        }
        if self.max_waiters == Some(0) {
            return Err(
                "max_waiters is zero, so no call could wait, not even for etcd's response: leave it out, or set at least 1".into(),
            );
        }
        if self.follow_members && self.connector.is_some() {
            return Err(
                "follow_members needs endpoints, which say how members are reached: set endpoints, or leave it out".into(),
            );
        }
        if let Some((name, _)) = &self.source.configured.user
            && name.is_empty()
        {
            return Err("the user's name is empty: leave `user` out, or name one".into());
        }
        #[cfg(feature = "tls")]
        self.source.configured.tls.as_ref().map_or(Ok(()), Tls::check)?;
        Ok(())
    }

    /// Requires one scheme for all endpoints: a client with half of its endpoints unencrypted is a mistake.
    fn check_scheme(&self) -> Result<(), String> {
        let urls = self.urls();
        let https = urls.iter().find(|url| url.starts_with("https://"));
        let http = urls.iter().find(|url| url.starts_with("http://"));
        if let Some(https) = https
            && cfg!(not(feature = "tls"))
        {
            return Err(format!(
                "endpoint `{https}` needs TLS: enable the feature `tls` of etcd-locked"
            ));
        }
        match (http, https) {
            (Some(http), Some(https)) => Err(format!(
                "endpoints `{http}` and `{https}` differ in scheme: write `http://` or `https://` for all of them"
            )),
            (Some(http), None) if self.has_tls() => Err(format!(
                "`tls` is set but endpoint `{http}` is not encrypted: write `https://`, or leave `tls` out"
            )),
            _ => Ok(()),
        }
    }
}

pub(super) fn check_prefix(prefix: &str) -> Result<(), String> {
    if let Some(other) =
        prefix.chars().find(|c| !(c.is_ascii_alphanumeric() || "._~:@=+-/".contains(*c)))
    {
        return Err(format!("{other:?} is not allowed: use letters, digits, `._~:@=+-` and `/`"));
    }
    match prefix {
        "" => Err("empty: write e.g. `locks/`".into()),
        // With a name, it has up to 1,280 bytes: the size of the column in `Dialect::migration`.
        _ if prefix.len() > 256 => Err("longer than 256 bytes: shorten it".into()),
        _ if prefix.ends_with('/') => Ok(()),
        _ => Err("must end in `/`, as `locks/` does".into()),
    }
}

pub(crate) fn check_ttl(ttl: Duration) -> Result<(), String> {
    if TTL.contains(&ttl) {
        return Ok(());
    }
    Err(format!("must be from {:?} to {:?}", TTL.start(), TTL.end()))
}

/// Maximum time for which `min_hold` may keep a name: longer values are mistakes.
const KEPT: Duration = Duration::from_secs(365 * 24 * 3600);

pub(crate) fn check_min_hold(
    min_hold: Option<Duration>,
    max_hold: Option<Duration>,
) -> Result<(), String> {
    let Some(time) = min_hold else { return Ok(()) };
    if time > KEPT {
        return Err(format!("min_hold {time:?}: must be a year at most"));
    }
    match max_hold.filter(|most| time > *most) {
        Some(most) => Err(format!(
            "min_hold {time:?} is longer than max_hold {most:?}: shorten it, or give the body longer"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::Credentials;

    #[test]
    fn users_other_than_root_have_limits() {
        let config = || Config::new(["http://a:1"]);
        let limits = |config: Config| config.source.has_limits();
        let provided = config().credentials(async || Ok::<_, String>(Credentials::new()));
        assert!(limits(config().user("shop", "secret")) && limits(provided));
        assert!(!limits(config()) && !limits(config().user("root", "secret")));
    }
}
