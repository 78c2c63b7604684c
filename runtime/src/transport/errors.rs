//! Errors of etcd-client: what they mean, and their texts (rules P10, P34).

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use etcd_locked_core::{Cause, Failure, Refusal};

/// Opening a client failed: whatever it was, nothing was applied. `by_url`: etcd-client opened it, which connects later, and
/// not a closure of the user's, which may have connected at once.
pub(super) fn unopened(url: &str, by_url: bool, error: &etcd_client::Error) -> Failure {
    use etcd_client::Error::{GRpcStatus, IoError, TransportError};

    let message = describe(error);
    let hint = hint(url, &message);
    let cause = named(url, message + hint);
    match (classify(error), error) {
        (Class::Refused(kind), _) => Failure::Refused(kind, cause),
        (_, GRpcStatus(_)) => Failure::Unavailable(cause),
        (_, IoError(_) | TransportError(_)) if !by_url => Failure::Unavailable(cause),
        // No answer, but our own options: a certificate that does not parse, say.
        _ => Failure::Refused(Refusal::Other, cause),
    }
}

/// etcd did not answer in time.
pub(super) fn silence(url: &str, limit: Duration) -> Cause {
    named(url, format!("no answer within {limit:?}"))
}

pub(super) fn named(url: &str, message: String) -> Cause {
    Arc::new(EndpointError {
        endpoint: url.to_owned(),
        message,
    })
}

/// Which endpoint failed, and why.
#[derive(Debug)]
struct EndpointError {
    endpoint: String,
    message: String,
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.endpoint, self.message)
    }
}

impl Error for EndpointError {}

/// Several endpoints failed, each for its own reason.
#[derive(Debug)]
struct EndpointErrors(Vec<Cause>);

impl fmt::Display for EndpointErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, cause) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{cause}")?;
        }
        Ok(())
    }
}

impl Error for EndpointErrors {}

/// One cause that names them all.
pub(super) fn all(mut causes: Vec<Cause>) -> Cause {
    match causes.pop() {
        Some(only) if causes.is_empty() => only,
        last => {
            causes.extend(last);
            Arc::new(EndpointErrors(causes))
        }
    }
}

/// What an error says about the request (rule P34).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Not applied; elsewhere or later it may work.
    Unavailable,
    /// Refused, and it will be refused again. Not applied, unless for want of space: then the write that crossed the quota was.
    Refused(Refusal),
    /// Not applied; works once authenticated anew.
    StaleToken,
    /// May have been applied, or may be applied later.
    Unknown,
}

/// Rule P34's table. What is not in it is [`Class::Unknown`]: a wrong guess the other way would leave a ghost key
/// (rule P10).
const CLASSES: &[(&str, Class)] = &[
    ("tcp connect error", Class::Unavailable),
    ("dns error", Class::Unavailable),
    ("etcdserver: no leader", Class::Unavailable),
    ("etcdserver: not capable", Class::Unavailable),
    ("etcdserver: too many requests", Class::Unavailable),
    (
        "etcdserver: rpc not supported for learner",
        Class::Unavailable,
    ),
    (
        "etcdserver: requested lease not found",
        Class::Refused(Refusal::LeaseNotFound),
    ),
    (
        "etcdserver: permission denied",
        Class::Refused(Refusal::PermissionDenied),
    ),
    (
        "etcdserver: mvcc: database space exceeded",
        Class::Refused(Refusal::NoSpace),
    ),
    (
        "etcdserver: duplicate key given in txn request",
        Class::Refused(Refusal::Other),
    ),
    (
        "etcdserver: too many operations in txn request",
        Class::Refused(Refusal::Other),
    ),
    (
        "etcdserver: request is too large",
        Class::Refused(Refusal::Other),
    ),
    (
        "grpc: received message larger than max",
        Class::Refused(Refusal::Other),
    ),
    (
        "etcdserver: too large lease TTL",
        Class::Refused(Refusal::Other),
    ),
    (
        "etcdserver: authentication failed, invalid user ID or password",
        Class::Refused(Refusal::Other),
    ),
    (
        "etcdserver: authentication is not enabled",
        Class::Refused(Refusal::Other),
    ),
    (
        "etcdserver: user name is empty",
        Class::Refused(Refusal::Other),
    ),
    ("etcdserver: invalid auth token", Class::StaleToken),
    (
        "etcdserver: revision of auth store is old",
        Class::StaleToken,
    ),
];

/// What the error says about the request it answers.
pub(super) fn classify(error: &etcd_client::Error) -> Class {
    match error {
        etcd_client::Error::GRpcStatus(status) => CLASSES
            .iter()
            .find(|(text, _)| status.message().contains(text))
            .map_or(Class::Unknown, |(_, class)| *class),
        etcd_client::Error::LeaseKeepAliveError(message) if message == LEASE_NOT_FOUND => {
            Class::Refused(Refusal::LeaseNotFound)
        }
        _ => Class::Unknown,
    }
}

/// What etcd-client makes of a first keepalive answer without a TTL.
const LEASE_NOT_FOUND: &str = "lease not found";

/// Whether etcd itself said so, which proves that the connection is sound.
pub(super) fn spoken(error: &etcd_client::Error) -> bool {
    match error {
        etcd_client::Error::GRpcStatus(status) => status.message().starts_with("etcdserver: "),
        etcd_client::Error::LeaseKeepAliveError(message) => message == LEASE_NOT_FOUND,
        _ => false,
    }
}

/// The whole chain of sources: "transport error" alone says nothing.
pub(super) fn describe(error: &etcd_client::Error) -> String {
    let (first, mut source) = match error {
        etcd_client::Error::GRpcStatus(status) => (status.message().to_owned(), status.source()),
        etcd_client::Error::TransportError(error) => (error.to_string(), error.source()),
        other => (other.to_string(), None),
    };
    let mut parts = vec![first];
    while let Some(error) = source {
        let part = error.to_string();
        if !parts.iter().any(|known| known.contains(&part)) {
            parts.push(part);
        }
        source = error.source();
    }
    if parts.len() > 1 {
        parts.retain(|part| part != "transport error");
    }
    parts.join(": ")
}

/// What to check when a new connection fails with a text that few know.
fn hint(url: &str, text: &str) -> &'static str {
    let has = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
    let cut = has(&["broken pipe", "reset", "closed", "canceled"]);
    match url.starts_with("https://") {
        _ if has(&["grpc-status header missing"]) => "; this is no etcd",
        _ if !url.contains("://") => "", // no URL: nothing here to be written otherwise
        true if has(&["InvalidContentType", "handshake eof"]) => {
            "; if this port speaks plain http, write `http://`"
        }
        true if has(&["CertificateRequired", "BadCertificate"]) => {
            "; if etcd wants a client certificate, name one"
        }
        // Which of the two it is, the other side did not wait to say.
        true if cut => {
            "; TLS was cut short: if this port speaks plain http, write `http://`, and if etcd wants a client certificate, \
             name one"
        }
        false if cut || has(&["frame with invalid size"]) => {
            "; if this port speaks TLS, write `https://`"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(message: &str) -> etcd_client::Error {
        etcd_client::Error::GRpcStatus(std::io::Error::other(message.to_owned()).into())
    }

    #[test]
    fn certainly_not_applied() {
        for message in [
            "tcp connect error",
            "dns error",
            "etcdserver: no leader",
            "etcdserver: not capable",
            "etcdserver: too many requests",
            "rpc error: code = Unavailable desc = etcdserver: no leader",
        ] {
            assert_eq!(classify(&said(message)), Class::Unavailable, "{message}");
        }
    }

    #[test]
    fn refused_for_good() {
        for (message, kind) in [
            (
                "etcdserver: requested lease not found",
                Refusal::LeaseNotFound,
            ),
            ("etcdserver: permission denied", Refusal::PermissionDenied),
            (
                "etcdserver: mvcc: database space exceeded",
                Refusal::NoSpace,
            ),
            (
                "etcdserver: duplicate key given in txn request",
                Refusal::Other,
            ),
            (
                "etcdserver: too many operations in txn request",
                Refusal::Other,
            ),
            ("etcdserver: request is too large", Refusal::Other),
            ("etcdserver: user name is empty", Refusal::Other),
            ("etcdserver: authentication is not enabled", Refusal::Other),
            (
                "etcdserver: authentication failed, invalid user ID or password",
                Refusal::Other,
            ),
        ] {
            assert_eq!(classify(&said(message)), Class::Refused(kind), "{message}");
        }
        let gone = etcd_client::Error::LeaseKeepAliveError("lease not found".into());
        assert_eq!(classify(&gone), Class::Refused(Refusal::LeaseNotFound));
    }

    #[test]
    fn everything_else_may_have_been_applied() {
        for message in [
            "",
            "etcdserver: request timed out",
            "etcdserver: request timed out, possibly due to previous leader failure",
            "etcdserver: leader changed",
            "etcdserver: server stopped",
            "h2 protocol error: http2 error",
            "transport error",
            "something new",
        ] {
            assert_eq!(classify(&said(message)), Class::Unknown, "{message}");
        }
        let ended = etcd_client::Error::LeaseKeepAliveError("stream ended".into());
        assert_eq!(classify(&ended), Class::Unknown);
    }

    #[test]
    fn a_stale_token_is_no_refusal() {
        for message in [
            "etcdserver: invalid auth token",
            "etcdserver: revision of auth store is old",
        ] {
            assert_eq!(classify(&said(message)), Class::StaleToken, "{message}");
        }
    }

    #[test]
    fn one_cause_names_all_endpoints() {
        let refused = |url| named(url, "connection refused".into());
        assert_eq!(
            all(vec![refused("http://a:1"), refused("http://b:2")]).to_string(),
            "http://a:1: connection refused; http://b:2: connection refused"
        );
        assert_eq!(
            all(vec![refused("http://a:1")]).to_string(),
            "http://a:1: connection refused"
        );
    }
}
