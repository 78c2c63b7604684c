//! Status of an engine, for health checks and people on call. Metrics do not use it.

use std::time::{Duration, SystemTime};

use crate::engine::{Engine, LeaseId, Mode, OwnedLock, View};
use crate::values::{Name, Sharing, Token, getters};

/// Snapshot of an engine, from [`status`](crate::status()) or [`Locks::status`](crate::Locks::status).
///
/// It is made on the caller's thread: a health check may call it every second, even with ten thousand locks held.
///
/// With the feature `serde` it serializes, for an endpoint such as `/locks`. The output contains the names of locks, which may be
/// personal data, so show it to operators only.
#[derive(Debug, Clone, Default)]
pub struct Status {
    reachable: bool,
    draining: bool,
    leases: Vec<LeaseStatus>,
    held: Vec<LockStatus>,
    waiting: Vec<LockStatus>,
}

/// A lease of the engine, for a session that calls use or have used lately.
#[derive(Debug, Clone)]
pub struct LeaseStatus {
    id: LeaseId,
    left: Duration,
}

/// A lock that a call of this process holds or waits for. A call with several names has an entry for each.
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
        let (now, clock) = (engine.now(), SystemTime::now());
        let since = |moment| clock.checked_sub(now - moment).unwrap_or(clock);
        for call in &calls {
            let function = call.function;
            let lock = |name: &Name, since, mode, token| {
                let name = name.clone();
                LockStatus { name, function, since, mode, token }
            };
            match call.held.get() {
                None => {
                    let waits = |name| lock(name, since(call.queued), call.mode, None);
                    status.waiting.extend(call.names.iter().map(waits));
                }
                Some(locks) if locks.are_held() => {
                    let since = since(locks.since);
                    let holds = |it: &OwnedLock| lock(&it.name, since, it.mode, Some(it.token));
                    status.held.extend(locks.locks().map(holds));
                }
                Some(_) => {} // lost, but not released yet
            }
        }
        status.held.sort_by_key(|lock| lock.since);
        status.waiting.sort_by_key(|lock| lock.since);
        status
    }

    pub(crate) fn of_none(draining: bool) -> Self {
        Self { draining, ..Self::default() }
    }

    getters! { self:
        /// Returns true if calls can be served: etcd is reachable, and no shutdown has begun. Use it for readiness probes.
        ///
        /// Do not use it for liveness probes: a restart does not bring etcd back, and loses the held locks.
        ready: bool = self.reachable && !self.draining;
        /// Returns true if etcd has responded and has not been lost since. It is lost when one exchange after another fails on all
        /// endpoints: soon if connections are refused, otherwise after a few seconds of silence. False until the first response.
        ///
        /// If the last response is more than five seconds old, a status makes even an idle engine contact etcd, and the next status has the
        /// result. Where there is no engine yet, nothing is sent.
        reachable: bool = self.reachable;
        /// Returns true once a shutdown has begun, or is over.
        draining: bool = self.draining;
        /// Returns the leases that the engine keeps alive, by their ids: one for each TTL in use, and more for very many locks.
        leases: &[LeaseStatus] = &self.leases;
        /// Returns the locks that calls of this process hold, the oldest first, without those that were lost. A reused lock (`reentrant`)
        /// is listed once.
        held: &[LockStatus] = &self.held;
        /// Returns the locks that calls of this process wait for, the longest wait first.
        waiting: &[LockStatus] = &self.waiting;
    }
}

impl LeaseStatus {
    getters! { self:
        /// Returns its id, which `etcdctl lease timetolive` expects in hexadecimal digits.
        id: i64 = self.id;
        /// Returns the longest time for which etcd keeps it without another renewal. Renewals are sent three times within a TTL, so less than
        /// half the TTL means that they fail.
        left: Duration = self.left;
    }
}

impl LockStatus {
    getters! { self:
        /// Returns the name. Its text may be personal data.
        name: &Name = &self.name;
        /// Returns the template of the name; `None` for a run-time name.
        template: Option<&'static str> = self.name.template();
        /// Returns the path of the annotated function; `None` for a call of [`lock`](crate::lock()).
        function: Option<&'static str> = self.function;
        /// Returns when it was acquired, or since when it is waited for, by this host's wall clock.
        since: SystemTime = self.since;
        /// Returns the fencing token; `None` while the call waits.
        token: Option<Token> = self.token;
        /// Returns how the call shares the name.
        sharing: Sharing = Sharing::of(self.mode);
    }
}

#[cfg(feature = "serde")]
mod serialized {
    use serde::ser::{Serialize, SerializeStruct, Serializer};

    use super::{LeaseStatus, LockStatus, Status};

    /// Serializes a type as these fields. Their names are visible to users.
    macro_rules! serialized {
        ($type:ident, $self:ident: $($field:literal: $value:expr,)+) => {
            impl Serialize for $type {
                fn serialize<S: Serializer>(&$self, to: S) -> Result<S::Ok, S::Error> {
                    let mut fields = to.serialize_struct(stringify!($type), [$($field),+].len())?;
                    $(fields.serialize_field($field, &$value)?;)+
                    fields.end()
                }
            }
        };
    }

    serialized! { Status, self:
        "ready": self.ready(),
        "reachable": self.reachable,
        "draining": self.draining,
        "leases": self.leases,
        "held": self.held,
        "waiting": self.waiting,
    }

    serialized! { LeaseStatus, self:
        "id": format_args!("{:x}", self.id),
        "seconds_left": self.left.as_secs_f64(),
    }

    serialized! { LockStatus, self:
        "name": self.name.text(),
        "template": self.template(),
        "function": self.function,
        "since": humantime::format_rfc3339_millis(self.since).to_string(),
        "token": self.token.map(|token| token.as_i64()),
        "mode": self.sharing().word(),
    }
}
