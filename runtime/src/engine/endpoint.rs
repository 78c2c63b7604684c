//! One etcd endpoint: its client, opened lazily, and what its errors mean (rules P32, P33, P34).

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, ConnectOptions};
use tokio::sync::{Mutex, watch};

use crate::clock::{Clock, Moment};
use crate::core::request::{Cause, Failure, Refusal};

/// etcd-client's own balancing fails every call that picks a dead endpoint (26 % with one of three dead, rule P32),
/// so each endpoint has a client of its own.
pub(super) struct Endpoint {
    url: String,
    options: ConnectOptions,
    /// With a user, opening a client authenticates, which proves the endpoint as well as a probe does.
    authenticates: bool,
    /// How long opening may take.
    patience: Duration,
    clock: Arc<dyn Clock>,
    slot: Mutex<Slot>,
    /// Connections up to this generation are not used again.
    lost: watch::Sender<u64>,
}

#[derive(Default)]
struct Slot {
    open: Option<Connection>,
    generation: u64,
    failed: Option<(Moment, Failure)>,
}

/// An endpoint's client; a clone of it shares the connection.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) client: Client,
    generation: u64,
}

impl Endpoint {
    pub(super) fn new(
        url: String,
        options: ConnectOptions,
        authenticates: bool,
        patience: Duration,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            url,
            options,
            authenticates,
            patience,
            clock,
            slot: Mutex::default(),
            lost: watch::Sender::new(0),
        }
    }

    /// The endpoint's connection, opened if it is not.
    ///
    /// A new connection is proven by one harmless call before it is used, so a dead, frozen or wrong endpoint is
    /// found out while nothing has been sent: without that, its first transaction would have an unknown outcome and
    /// cost a seal (rule P10).
    pub(super) async fn connect(&self) -> Result<Connection, Failure> {
        let asked = self.clock.now();
        let mut slot = self.slot.lock().await;
        if let Some(open) = &slot.open
            && !self.is_lost(open)
        {
            return Ok(open.clone());
        }
        // Whoever queued behind a failed attempt shares its failure instead of waiting for one more.
        if let Some((when, failure)) = &slot.failed
            && *when >= asked
        {
            return Err(failure.clone());
        }
        slot.open = None;
        match tokio::time::timeout(self.patience, self.open()).await {
            Ok(Ok(client)) => {
                slot.generation += 1;
                let open = Connection {
                    client,
                    generation: slot.generation,
                };
                slot.open = Some(open.clone());
                Ok(open)
            }
            Ok(Err(error)) => {
                let failure = unopened(&self.url, &error);
                slot.failed = Some((self.clock.now(), failure.clone()));
                Err(failure)
            }
            Err(_) => {
                let failure = Failure::Unavailable(self.silence(self.patience));
                slot.failed = Some((self.clock.now(), failure.clone()));
                Err(failure)
            }
        }
    }

    async fn open(&self) -> Result<Client, etcd_client::Error> {
        let client = Client::connect([&self.url], Some(self.options.clone())).await?;
        if self.authenticates {
            return Ok(client);
        }
        match client.maintenance_client().status().await {
            // A refusal is an answer too: this is an etcd.
            Err(error) if !matches!(classify(&error), Class::Refused(_) | Class::StaleToken) => {
                Err(error)
            }
            _ => Ok(client),
        }
    }

    /// What a failed exchange over this connection comes to.
    pub(super) fn failed(&self, connection: &Connection, error: &etcd_client::Error) -> Failure {
        if !spoken(error) {
            self.lose(connection);
        }
        let cause = named(&self.url, describe(error));
        match classify(error) {
            Class::Unavailable => Failure::Unavailable(cause),
            Class::Refused(kind) => Failure::Refused { kind, cause },
            Class::StaleToken => Failure::Refused {
                kind: Refusal::Other,
                cause,
            },
            Class::Unknown => Failure::Unknown(cause),
        }
    }

    /// The connection is not used again; exchanges under way on it may still end.
    pub(super) fn lose(&self, connection: &Connection) {
        self.lost.send_if_modified(|lost| {
            let newer = *lost < connection.generation;
            *lost = connection.generation.max(*lost);
            newer
        });
    }

    /// Whether an exchange has found the connection to be no good.
    pub(super) fn is_lost(&self, connection: &Connection) -> bool {
        *self.lost.borrow() >= connection.generation
    }

    /// Completes once [`is_lost`](Self::is_lost).
    pub(super) async fn lost(&self, connection: &Connection) {
        // Fails only without a sender, which is this.
        let _ = self
            .lost
            .subscribe()
            .wait_for(|lost| *lost >= connection.generation)
            .await;
    }

    /// Nobody answered in time.
    pub(super) fn silence(&self, limit: Duration) -> Cause {
        silence(&self.url, limit)
    }
}

/// Opening a client failed: whatever it was, nothing was applied.
pub(super) fn unopened(url: &str, error: &etcd_client::Error) -> Failure {
    let message = describe(error);
    let hint = hint(url, &message);
    let cause = named(url, message + hint);
    match (classify(error), error) {
        (Class::Refused(kind), _) => Failure::Refused { kind, cause },
        (_, etcd_client::Error::GRpcStatus(_)) => Failure::Unavailable(cause),
        // No answer, but our own options: a certificate that does not parse, say.
        _ => Failure::Refused {
            kind: Refusal::Other,
            cause,
        },
    }
}

/// Nobody answered in time.
pub(super) fn silence(url: &str, limit: Duration) -> Cause {
    named(url, format!("no answer within {limit:?}"))
}

fn named(url: &str, message: String) -> Cause {
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
    /// Not applied; it will be refused again.
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
        Class::Refused(Refusal::Other),
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
fn spoken(error: &etcd_client::Error) -> bool {
    match error {
        etcd_client::Error::GRpcStatus(status) => status.message().starts_with("etcdserver: "),
        etcd_client::Error::LeaseKeepAliveError(message) => message == LEASE_NOT_FOUND,
        _ => false,
    }
}

/// The whole chain of sources: "transport error" alone helps nobody.
fn describe(error: &etcd_client::Error) -> String {
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

/// What to look at when a new connection fails with words that are Greek to most.
fn hint(url: &str, text: &str) -> &'static str {
    let has = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
    let cut = has(&["broken pipe", "reset", "closed", "canceled"]);
    match url.starts_with("https://") {
        _ if has(&["grpc-status header missing"]) => "; this is no etcd",
        true if has(&["InvalidContentType", "handshake eof"]) => {
            "; if this port speaks plain http, write `http://`"
        }
        true if cut || has(&["CertificateRequired", "BadCertificate"]) => {
            "; if etcd wants a client certificate, name one"
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
    use crate::clock::BootClock;

    fn said(message: &str) -> etcd_client::Error {
        etcd_client::Error::GRpcStatus(std::io::Error::other(message.to_owned()).into())
    }

    fn endpoint(url: String) -> Endpoint {
        let patience = Duration::from_millis(50);
        Endpoint::new(
            url,
            ConnectOptions::new(),
            false,
            patience,
            Arc::new(BootClock),
        )
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
            ("etcdserver: mvcc: database space exceeded", Refusal::Other),
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

    #[tokio::test]
    async fn a_refused_connection_says_so() {
        let Err(Failure::Unavailable(cause)) =
            endpoint("http://127.0.0.1:1".into()).connect().await
        else {
            panic!("not unavailable");
        };
        let message = cause.to_string();
        assert!(
            message.starts_with("http://127.0.0.1:1: tcp connect error: "),
            "{message}"
        );
    }

    #[tokio::test]
    async fn whoever_waited_shares_the_failure() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        let endpoint = endpoint(url.clone());
        let began = std::time::Instant::now();
        let (a, b, c) = tokio::join!(endpoint.connect(), endpoint.connect(), endpoint.connect());
        assert!(began.elapsed() < Duration::from_millis(100));
        for attempt in [a, b, c] {
            let Err(Failure::Unavailable(cause)) = attempt else {
                panic!("not unavailable");
            };
            assert_eq!(cause.to_string(), format!("{url}: no answer within 50ms"));
        }
    }
}
