//! Endpoint of etcd in the configuration: checked, completed, and shown without secrets.

use std::fmt;

/// Default port of an endpoint: etcd's port for clients.
const ETCD_PORT: u16 = 2379;

/// Shown by `Debug` for a secret that is set.
pub(super) const HIDDEN: &str = "***";

/// Completes an endpoint by its port, and by this scheme if it lacks one.
pub(super) fn url(endpoint: &str, scheme: &str) -> String {
    let endpoint = endpoint.trim_end_matches('/');
    let (scheme, host) = endpoint.split_once("://").unwrap_or((scheme, endpoint));
    match port(host) {
        Some(_) => format!("{scheme}://{host}"),
        None => format!("{scheme}://{host}:{ETCD_PORT}"),
    }
}

/// Returns the port of a host, as written. An IPv6 address in brackets has its own colons.
fn port(host: &str) -> Option<&str> {
    let (_, port) = host.rsplit_once(':')?;
    (!port.ends_with(']')).then_some(port)
}

/// Checks an endpoint. The error does not show its text, which may contain a password.
pub(super) fn check_endpoint(endpoint: &str) -> Result<(), String> {
    let example = "write `http://host:port` or `https://host:port`";
    let host = match endpoint.split_once("://") {
        Some(("http" | "https", host)) => host,
        Some(_) => return Err(format!("unknown scheme: {example}")),
        None => endpoint,
    };
    let host = host.strip_suffix('/').unwrap_or(host);
    if host.is_empty() {
        return Err(format!("an endpoint is empty: {example}"));
    }
    if host.contains('@') {
        return Err("it contains a user: remove it, and use `user` (`ETCD_LOCKED_USER`)".into());
    }
    if host.contains(',') {
        return Err("several endpoints in one string: give each one its own string".into());
    }
    if let Some(separator) = host.chars().find(|c| ";|".contains(*c) || c.is_whitespace()) {
        return Err(format!(
            "{separator:?} is in it: separate endpoints by `,` in a variable, and give each one its own string in code"
        ));
    }
    if host.matches(':').count() > 1 && !host.starts_with('[') {
        return Err("an IPv6 address needs to be in brackets: write `http://[::1]:2379`".into());
    }
    if !host.chars().all(|c| c.is_ascii_alphanumeric() || "-._:[]%".contains(c)) {
        return Err(format!("a path or query is not allowed, only host and port: {example}"));
    }
    if port(host).is_some_and(|port| port.parse::<u16>().is_err()) {
        return Err(format!("the port is not a number up to 65535: {example}"));
    }
    Ok(())
}

pub(crate) fn is_endpoint(url: &str) -> bool {
    check_endpoint(url).is_ok()
}

/// Endpoints as configured. `Debug` shows them [without secrets](Self::shown).
#[derive(Clone, Default)]
pub(crate) struct Endpoints(pub(crate) Vec<String>);

impl Endpoints {
    /// Returns the endpoints without users and passwords; an endpoint that has any is refused. If a list was split at a comma inside a
    /// password, the parts before the host are hidden.
    pub(super) fn shown(&self) -> Vec<String> {
        let of_a_user = self.0.iter().rposition(|it| it.contains('@'));
        let shown = self.0.iter().enumerate();
        shown
            .map(|(at, endpoint)| match endpoint.rsplit_once('@') {
                Some((_, host)) => format!("{HIDDEN}@{host}"),
                None if of_a_user.is_some_and(|last| at < last) => HIDDEN.to_owned(),
                None => without_word_as_port(endpoint),
            })
            .collect()
    }
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shown().fmt(f)
    }
}

/// Hides a port that is not a number, because it may be a password whose host is missing.
fn without_word_as_port(endpoint: &str) -> String {
    let host = endpoint.find("://").map_or(0, |at| at + 3);
    let (scheme, rest) = endpoint.split_at(host);
    let ends = |c| ['/', '?', '#'].contains(&c);
    let is_number = |port: &str| port.chars().take_while(|c| !ends(*c)).all(|c| c.is_ascii_digit());
    match rest.split_once(':') {
        Some((host, port)) if !rest.starts_with('[') && !is_number(port) => {
            format!("{scheme}{host}:{HIDDEN}")
        }
        _ => endpoint.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_is_completed() {
        for (endpoint, whole) in [
            ("http://a:1/", "http://a:1"),
            ("a", "https://a:2379"),
            ("http://[::1]", "http://[::1]:2379"),
            ("[::1]:1", "https://[::1]:1"),
        ] {
            assert_eq!(check_endpoint(endpoint), Ok(()), "{endpoint}");
            assert_eq!(url(endpoint, "https"), whole);
        }
    }

    #[test]
    fn endpoints_are_shown_without_users_and_passwords() {
        for (endpoints, expected) in [
            ("http://me:tiger@a:1,http://b:1", "***@a:1,http://b:1"),
            ("http://me:ti@ger@a:1", "***@a:1"),
            ("http://me:7,tiger@a:1,b:1", "***,***@a:1,b:1"),
            ("http://me:tiger", "http://me:***"),
            ("me:tiger", "me:***"),
            ("http://a:1,https://b,c:2379", "http://a:1,https://b,c:2379"),
            ("http://[::1]:2379,http://[::1]", "http://[::1]:2379,http://[::1]"),
            ("http://a:99999,http://a:1/v3,http://a:", "http://a:99999,http://a:1/v3,http://a:"),
        ] {
            let endpoints = Endpoints(endpoints.split(',').map(str::to_owned).collect());
            assert_eq!(endpoints.shown().join(","), expected);
        }
    }
}
