//! Errors of etcd-client: their meaning, and their texts (rules P10, P34).

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use etcd_locked_core::{Cause, Failure, Refusal};

use super::gather::ENDED;
use crate::values::{BackendError, is_permanent, shown};

/// Length to which a message of etcd is cut, in characters.
const MESSAGE: usize = 1_000;

/// Returns the failure to open a client, before anything was applied. `by_url` is true if etcd-client opened it, which connects later. A
/// user's closure may have connected at once.
pub(super) fn unopened(url: &str, by_url: bool, error: &etcd_client::Error) -> Failure {
    use etcd_client::Error::{GRpcStatus, IoError, TransportError};

    let mut message = describe(error);
    if message.contains("grpc-status header missing") {
        message.push_str("; this is not an etcd");
    }
    match (classify(error), error) {
        (Class::Refused(kind), _) => refused(kind, url, message),
        (_, GRpcStatus(_)) => Failure::Unavailable(named(url, message)),
        (_, IoError(_) | TransportError(_)) if !by_url => Failure::Unavailable(named(url, message)),
        // Not a response, but our own options: for example, a certificate that cannot be parsed.
        _ => refused(Refusal::Other, url, message),
    }
}

/// Returns the failure of an endpoint that cannot be used as configured. Another one may serve, so this alone refuses no exchange.
pub(super) fn misconfigured(url: &str, error: &etcd_client::Error, hint: &str) -> Failure {
    let message = format!("{}{hint}", describe(error));
    Failure::Unavailable(permanently(url, &message))
}

/// Returns the failure for a refused certificate. The text may say which one, and so what to do.
pub(super) fn bad_certificate(url: &str, error: &etcd_client::Error) -> Failure {
    let text = describe(error);
    let of_client = ["CertificateRequired", "BadCertificate"].iter().any(|it| text.contains(it));
    let hint = if of_client { "; if etcd needs a client certificate, set one" } else { "" };
    misconfigured(url, error, hint)
}

/// Returns the failure for a request that etcd refused, or would refuse.
pub(super) fn refused(kind: Refusal, url: &str, message: String) -> Failure {
    let cause = match kind {
        Refusal::Other if message.contains(CORRUPT) => {
            named(url, message + " (alarm CORRUPT): no writes until an operator disarms it")
        }
        Refusal::Other => permanently(url, &message),
        Refusal::LeaseNotFound | Refusal::PermissionDenied | Refusal::NoSpace => {
            named(url, message)
        }
    };
    Failure::Refused(kind, cause)
}

/// Returns the failure after no endpoint has served, each for its own reason; nothing was applied. A refusal if no reason can pass by
/// itself.
pub(super) fn unserved(causes: Vec<Cause>) -> Failure {
    let cause = all(causes);
    match is_permanent(&*cause) {
        true => Failure::Refused(Refusal::Other, cause),
        false => Failure::Unavailable(cause),
    }
}

pub(super) fn silence(url: &str, limit: Duration) -> Cause {
    let millis = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    let limit = Duration::from_millis(millis);
    named(url, format!("no response within {limit:?}"))
}

/// Returns a cause that names the endpoint, and passes by itself.
pub(super) fn named(url: &str, message: String) -> Cause {
    let message = shown(&message, MESSAGE);
    Arc::new(BackendError::passing(format!("{url}: {message}")))
}

/// Returns a cause that names the endpoint, and lasts until an operator changes something.
fn permanently(url: &str, message: &str) -> Cause {
    let message = shown(message, MESSAGE);
    Arc::new(BackendError::permanent(format!("{url}: {message}")))
}

pub(super) fn all(mut causes: Vec<Cause>) -> Cause {
    match causes.pop() {
        Some(only) if causes.is_empty() => only,
        last => {
            causes.extend(last);
            Arc::new(BackendError::of_all(&causes))
        }
    }
}

/// Meaning of an error for its request (rule P34).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Not applied; may succeed elsewhere or later.
    Unavailable,
    /// Refused, and it will be refused again. Not applied, except for lack of space: the write that crossed the quota was applied.
    Refused(Refusal),
    /// Not applied; succeeds after a new authentication.
    StaleToken,
    /// May have been applied, or may be applied later.
    Unknown,
}

/// etcd's messages for a member without a leader, for members whose data differ, and for a lease that has ended.
pub(super) const NO_LEADER: &str = "etcdserver: no leader";
const CORRUPT: &str = "etcdserver: corrupt cluster";
pub(super) const NO_LEASE: &str = "etcdserver: requested lease not found";

const FOR_GOOD: Class = Class::Refused(Refusal::Other);

/// Rule P34's table. Everything else is [`Class::Unknown`]: a wrong guess the other way would leave a ghost key.
const CLASSES: &[(&str, Class)] = &[
    ("tcp connect error", Class::Unavailable),
    ("dns error", Class::Unavailable),
    (ENDED, Class::Unavailable),
    (NO_LEADER, Class::Unavailable),
    ("etcdserver: not capable", Class::Unavailable),
    ("etcdserver: too many requests", Class::Unavailable),
    ("etcdserver: rpc not supported for learner", Class::Unavailable),
    (NO_LEASE, Class::Refused(Refusal::LeaseNotFound)),
    ("etcdserver: permission denied", Class::Refused(Refusal::PermissionDenied)),
    ("etcdserver: mvcc: database space exceeded", Class::Refused(Refusal::NoSpace)),
    (CORRUPT, FOR_GOOD),
    ("etcdserver: duplicate key given in txn request", FOR_GOOD),
    ("etcdserver: too many operations in txn request", FOR_GOOD),
    ("etcdserver: request is too large", FOR_GOOD),
    ("grpc: received message larger than max", FOR_GOOD),
    ("etcdserver: too large lease TTL", FOR_GOOD),
    ("etcdserver: authentication failed, invalid user ID or password", FOR_GOOD),
    ("etcdserver: authentication is not enabled", FOR_GOOD),
    ("etcdserver: user name is empty", FOR_GOOD),
    ("etcdserver: invalid auth token", Class::StaleToken),
    ("etcdserver: revision of auth store is old", Class::StaleToken),
];

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

/// Returns true if a new connection, with the current credentials, may succeed: this one is over, or etcd no longer knows its token or
/// refuses its user.
pub(super) fn wants_another_connection(error: &etcd_client::Error, may_change: bool) -> bool {
    let etcd_client::Error::GRpcStatus(status) = error else { return false };
    let user =
        ["etcdserver: authentication failed, invalid user", "etcdserver: user name is empty"];
    let says = |text: &&str| status.message().contains(text);
    classify(error) == Class::StaleToken || says(&ENDED) || may_change && user.iter().any(says)
}

/// etcd-client's error for a first keepalive response without a TTL.
const LEASE_NOT_FOUND: &str = "lease not found";

/// Returns true if etcd itself sent the error, which proves that the connection works.
pub(super) fn spoken(error: &etcd_client::Error) -> bool {
    match error {
        etcd_client::Error::GRpcStatus(status) => status.message().starts_with("etcdserver: "),
        etcd_client::Error::LeaseKeepAliveError(message) => message == LEASE_NOT_FOUND,
        _ => false,
    }
}

/// Returns the texts of an error and all its sources: "transport error" alone says nothing.
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

/// Reason why the port of an endpoint that never responded cannot be reached with this scheme or these certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Suspicion {
    /// A certificate was refused, by either side.
    Certificate,
    /// The connection ended as it does if the port speaks TLS.
    Tls,
    /// The connection ended as it does if the port speaks plain HTTP, or requires a client certificate.
    Plain,
}

/// Returns what the text of a new connection's failure suggests; `None` if it does not suggest TLS.
pub(super) fn suspicion(url: &str, error: &etcd_client::Error) -> Option<Suspicion> {
    let text = describe(error);
    let has = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
    let cut = has(&["broken pipe", "reset", "closed", "canceled"]);
    match url.split_once("://")?.0 {
        // An alert is the other side's decision, unless it reports its own failure.
        "https" if has(&["invalid peer certificate"]) => Some(Suspicion::Certificate),
        "https" if has(&["received fatal alert"]) && !has(&["InternalError"]) => {
            Some(Suspicion::Certificate)
        }
        "https" if cut || has(&["InvalidContentType", "handshake eof"]) => Some(Suspicion::Plain),
        "http" if cut || has(&["frame with invalid size"]) => Some(Suspicion::Tls),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let status = std::io::Error::other(message.to_owned()).into();
            let error = etcd_client::Error::GRpcStatus(status);
            assert_eq!(classify(&error), Class::Unknown, "{message}");
        }
        let ended = etcd_client::Error::LeaseKeepAliveError("stream ended".into());
        assert_eq!(classify(&ended), Class::Unknown);
    }
}
