//! Status of an engine: what a health check and the person on call ask of a process. Metrics are not made of it.

use std::time::{Duration, SystemTime};

use crate::clock::Moment;
use crate::engine::{Call, Engine, LeaseId, Mode, View};
use crate::values::name::Name;
use crate::values::queue::Sharing;
use crate::values::token::Token;

/// What an engine is at one moment: by [`status`](crate::status()) or [`Locks::status`](crate::Locks::status).
///
/// It is a snapshot, made on the caller's thread: a health check may ask for it each second, with ten thousand locks held.
///
/// ```
/// # async fn start() -> Result<(), etcd_locked::LockError> {
/// use etcd_locked::{Config, Locks};
///
/// let locks = Locks::connect(Config::embedded()).await?;
/// let guard = locks.lock("orders/7").await?;
/// let status = locks.status();
/// assert!(status.ready());
/// assert_eq!(status.held()[0].token(), Some(guard.token()));
/// # guard.release().await }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(start()).unwrap();
/// ```
///
/// With the feature `serde` it serializes, for an endpoint such as `/locks`. That shows the names of locks, which may be personal
/// data, so it is for operators only.
#[derive(Debug, Clone, Default)]
pub struct Status {
    reachable: bool,
    draining: bool,
    leases: Vec<LeaseStatus>,
    held: Vec<LockStatus>,
    waiting: Vec<LockStatus>,
}

/// A lease of the engine: of a session that calls use, or have used lately.
#[derive(Debug, Clone)]
pub struct LeaseStatus {
    id: LeaseId,
    left: Duration,
}

/// A lock that a call of this process holds, or waits for. A call with several names has one for each.
#[derive(Debug, Clone)]
pub struct LockStatus {
    name: Name,
    function: Option<&'static str>,
    since: SystemTime,
    mode: Mode,
    token: Option<Token>,
}

impl Status {
    pub(crate) fn of(engine: &Engine) -> Self {
        let View { reachable, draining, leases, calls } = engine.view();
        let leases = leases.into_iter().map(|(id, left)| LeaseStatus { id, left }).collect();
        let mut status = Self { reachable, draining, leases, ..Self::default() };
        status.leases.sort_by_key(|lease| lease.id);
        let time = (engine.now(), SystemTime::now());
        for call in &calls {
            status.add(call, time);
        }
        status.held.sort_by_key(|lock| lock.since);
        status.waiting.sort_by_key(|lock| lock.since);
        status
    }

    pub(crate) fn of_none(draining: bool) -> Self {
        Self { draining, ..Self::default() }
    }

    fn add(&mut self, call: &Call, (now, clock): (Moment, SystemTime)) {
        let since = |moment| clock.checked_sub(now - moment).unwrap_or(clock);
        let lock = |name: &Name, since, mode, token| LockStatus {
            name: name.clone(),
            function: call.function,
            since,
            mode,
            token,
        };
        match call.held.get() {
            None => {
                let since = since(call.queued);
                let names = call.names.iter();
                self.waiting.extend(names.map(|name| lock(name, since, call.mode, None)));
            }
            Some(locks) if locks.are_held() => {
                let since = since(locks.since);
                let held = locks.locks();
                self.held.extend(held.map(|it| lock(&it.name, since, it.mode, Some(it.token))));
            }
            Some(_) => {} // lost, and not given back yet
        }
    }

    /// Whether calls can be served: etcd is reachable, and no shutdown has begun. What a readiness probe asks.
    ///
    /// For liveness it is the wrong question: a restart does not bring etcd back, and loses the locks that are held.
    pub fn ready(&self) -> bool {
        self.reachable && !self.draining
    }

    /// Whether etcd has answered, and has not been lost since. It is lost when one exchange after another fails, on all endpoints: soon
    /// if connections are refused, after a few seconds of silence otherwise. False until the first answer.
    ///
    /// An engine without locks and leases is made to ask etcd by a status that finds the last answer more than five seconds old: the
    /// next status has the result. Where there is no engine yet, nothing is asked.
    pub fn reachable(&self) -> bool {
        self.reachable
    }

    /// Whether a shutdown has begun, or is over.
    pub fn draining(&self) -> bool {
        self.draining
    }

    /// The leases that the engine keeps alive, by their ids: one for each TTL in use, and more for very many locks.
    pub fn leases(&self) -> &[LeaseStatus] {
        &self.leases
    }

    /// The locks that calls of this process hold, the oldest first; not those that were lost. A lock that is used again (`reentrant`)
    /// is listed once.
    pub fn held(&self) -> &[LockStatus] {
        &self.held
    }

    /// The locks that calls of this process wait for, the longest wait first.
    pub fn waiting(&self) -> &[LockStatus] {
        &self.waiting
    }
}

impl LeaseStatus {
    /// Its id, which `etcdctl lease timetolive` takes in hexadecimal digits.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// How long etcd keeps it at most, if it is not renewed. Renewals are sent three times within a TTL, so less than half the TTL says
    /// that they fail.
    pub fn left(&self) -> Duration {
        self.left
    }
}

impl LockStatus {
    /// The name. Its text may be personal data.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The template of the name; `None` for a name given at run time.
    pub fn template(&self) -> Option<&'static str> {
        self.name.template()
    }

    /// Path of the annotated function; `None` for a call of [`lock`](crate::lock()).
    pub fn function(&self) -> Option<&'static str> {
        self.function
    }

    /// Since when it is held, or waited for, by this host's wall clock.
    pub fn since(&self) -> SystemTime {
        self.since
    }

    /// The fencing token; `None` while it is waited for.
    pub fn token(&self) -> Option<Token> {
        self.token
    }

    /// With whom the call shares the name.
    pub fn sharing(&self) -> Sharing {
        self.mode.into()
    }
}

// Users read the names of these fields.
#[cfg(feature = "serde")]
mod serialized {
    use serde::ser::{Serialize, SerializeStruct, Serializer};

    use super::{LeaseStatus, LockStatus, Status};

    impl Serialize for Status {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            let mut fields = to.serialize_struct("Status", 6)?;
            fields.serialize_field("ready", &self.ready())?;
            fields.serialize_field("reachable", &self.reachable)?;
            fields.serialize_field("draining", &self.draining)?;
            fields.serialize_field("leases", &self.leases)?;
            fields.serialize_field("held", &self.held)?;
            fields.serialize_field("waiting", &self.waiting)?;
            fields.end()
        }
    }

    impl Serialize for LeaseStatus {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            let mut fields = to.serialize_struct("LeaseStatus", 2)?;
            fields.serialize_field("id", &format_args!("{:x}", self.id))?;
            fields.serialize_field("seconds_left", &self.left.as_secs_f64())?;
            fields.end()
        }
    }

    impl Serialize for LockStatus {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            let mut fields = to.serialize_struct("LockStatus", 6)?;
            let since = humantime::format_rfc3339_millis(self.since);
            fields.serialize_field("name", &self.name.text())?;
            fields.serialize_field("template", &self.template())?;
            fields.serialize_field("function", &self.function)?;
            fields.serialize_field("since", &format_args!("{since}"))?;
            fields.serialize_field("token", &self.token.map(|token| token.as_i64()))?;
            fields.serialize_field("mode", self.sharing().word())?;
            fields.end()
        }
    }
}
