//! Operation on an etcd as data: generated, played on both sides, shrunk and printed.

use std::fmt::{self, Display, Formatter};

use etcd_client::{CompareOp, SortOrder, SortTarget};

/// A key, one of a few, so that operations often concern the same key.
pub(crate) type Key = &'static [u8];

/// All keys: some below others, some with the smallest and the greatest byte.
///
/// There are at most twelve. Go's sort is not stable, and from thirteen on etcd may answer equals in another order.
pub(crate) const KEYS: &[Key] =
    &[b"\0", b"a", b"a/1", b"a/2", b"a/2/x", b"ab", b"b", b"b\xff", b"\xff"];

/// A revision that means the same on both sides, although their numbers differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rev {
    /// The same number on both sides: 0 is "none", and negative numbers are invalid.
    Plain(i64),
    /// Counted from the newest revision; above 0 lies the future.
    Now(i64),
    /// Counted from the start of the case, at which both sides are compacted.
    Start(i64),
}

/// A lease that means the same on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lease {
    None,
    /// A lease whose id the client chooses.
    Given(i64),
    /// The n-th lease whose id etcd chose; if there are fewer, one that does not exist.
    Auto(usize),
}

/// End of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The range is just the key.
    Key,
    Prefix,
    /// Everything from the key on.
    Open,
    Before(Key),
}

#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) key: Key,
    pub(crate) end: End,
    pub(crate) limit: i64,
    pub(crate) revision: Rev,
    pub(crate) sort: Option<(SortTarget, SortOrder)>,
    pub(crate) serializable: bool,
    pub(crate) keys_only: bool,
    pub(crate) count_only: bool,
    pub(crate) min_mod: Rev,
    pub(crate) max_mod: Rev,
    pub(crate) min_create: Rev,
    pub(crate) max_create: Rev,
}

#[derive(Clone, Debug)]
pub(crate) struct Put {
    pub(crate) key: Key,
    pub(crate) value: &'static [u8],
    pub(crate) lease: Lease,
    pub(crate) prev_kv: bool,
    pub(crate) ignore_value: bool,
    pub(crate) ignore_lease: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Delete {
    pub(crate) key: Key,
    pub(crate) end: End,
    pub(crate) prev_kv: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Target {
    Version(i64),
    Create(Rev),
    Mod(Rev),
    Value(&'static [u8]),
    Lease(Lease),
}

#[derive(Clone, Debug)]
pub(crate) struct Compare {
    pub(crate) key: Key,
    pub(crate) end: End,
    pub(crate) is: CompareOp,
    pub(crate) target: Target,
}

#[derive(Clone, Debug)]
pub(crate) struct Txn {
    pub(crate) compares: Vec<Compare>,
    pub(crate) then: Vec<TxnOp>,
    pub(crate) otherwise: Vec<TxnOp>,
}

#[derive(Clone, Debug)]
pub(crate) enum TxnOp {
    Range(Range),
    Put(Put),
    Delete(Delete),
    Txn(Txn),
}

/// List of a transaction that is filled up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Many {
    Compares,
    Then,
    Otherwise,
    /// The operations of a nested transaction.
    Nested,
}

#[derive(Clone, Debug)]
pub(crate) struct Watch {
    /// Number of the stream in the case.
    pub(crate) stream: usize,
    /// Its id; for 0 etcd chooses one.
    pub(crate) id: i64,
    pub(crate) key: Key,
    pub(crate) end: End,
    pub(crate) start: Rev,
    pub(crate) no_put: bool,
    pub(crate) no_delete: bool,
    pub(crate) prev_kv: bool,
    pub(crate) fragment: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Range(Range),
    Put(Put),
    /// A put of a value with this many bytes.
    Huge(usize),
    Delete(Delete),
    Txn(Txn),
    /// A transaction with this many operations or compares in one list.
    Many(Many, usize),
    Compact {
        at: Rev,
        physical: bool,
    },
    Grant {
        lease: Lease,
        ttl: i64,
    },
    Revoke(Lease),
    TimeToLive {
        lease: Lease,
        keys: bool,
    },
    KeepAlive(Lease),
    /// A lease renewed, revoked, and renewed once more on one stream.
    KeepAliveRevoked(Lease),
    Leases,
    Watch(Watch),
    Cancel {
        stream: usize,
        id: i64,
    },
    Progress {
        stream: usize,
    },
}

impl Op {
    /// Returns the kind of the operation, for the coverage.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Range(_) => "range",
            Self::Put(_) | Self::Huge(_) => "put",
            Self::Delete(_) => "delete",
            Self::Txn(txn) if txn.is_nested() => "nested txn",
            Self::Txn(_) | Self::Many(..) => "txn",
            Self::Compact { .. } => "compact",
            Self::Grant { .. } => "lease grant",
            Self::Revoke(_) => "lease revoke",
            Self::TimeToLive { .. } => "lease time-to-live",
            Self::KeepAlive(_) | Self::KeepAliveRevoked(_) => "lease keep-alive",
            Self::Leases => "leases",
            Self::Watch(_) => "watch",
            Self::Cancel { .. } => "watch cancel",
            Self::Progress { .. } => "watch progress",
        }
    }
}

impl Txn {
    fn is_nested(&self) -> bool {
        let within = |op: &TxnOp| matches!(op, TxnOp::Txn(_));
        self.then.iter().any(within) || self.otherwise.iter().any(within)
    }
}

/// Shows bytes as readable text.
pub(crate) fn text(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}

impl Display for Rev {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(it) => write!(out, "{it}"),
            Self::Now(it) => write!(out, "now{it:+}"),
            Self::Start(it) => write!(out, "start{it:+}"),
        }
    }
}

impl Display for Lease {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => write!(out, "0"),
            Self::Given(id) => write!(out, "{id}"),
            Self::Auto(nth) => write!(out, "auto{nth}"),
        }
    }
}

/// Shows a key with the end of its range.
fn span(key: Key, end: End) -> String {
    let key = text(key);
    match end {
        End::Key => key,
        End::Prefix => format!("{key}…"),
        End::Open => format!("[{key}, ∞)"),
        End::Before(end) => format!("[{key}, {})", text(end)),
    }
}

/// Shows the options that are on.
fn flags(flags: &[(bool, &str)]) -> String {
    flags.iter().filter(|(on, _)| *on).map(|(_, word)| format!(" {word}")).collect()
}

impl Display for Range {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "range {}", span(self.key, self.end))?;
        if self.limit != 0 {
            write!(out, " limit={}", self.limit)?;
        }
        for (name, revision) in [
            ("revision", self.revision),
            ("min_mod", self.min_mod),
            ("max_mod", self.max_mod),
            ("min_create", self.min_create),
            ("max_create", self.max_create),
        ] {
            if revision != Rev::Plain(0) {
                write!(out, " {name}={revision}")?;
            }
        }
        if let Some((target, order)) = self.sort {
            write!(out, " sort={target:?}/{order:?}")?;
        }
        let flags = flags(&[
            (self.serializable, "serializable"),
            (self.keys_only, "keys_only"),
            (self.count_only, "count_only"),
        ]);
        write!(out, "{flags}")
    }
}

impl Display for Put {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "put {} = {}", text(self.key), text(self.value))?;
        if self.lease != Lease::None {
            write!(out, " lease={}", self.lease)?;
        }
        let flags = flags(&[
            (self.prev_kv, "prev_kv"),
            (self.ignore_value, "ignore_value"),
            (self.ignore_lease, "ignore_lease"),
        ]);
        write!(out, "{flags}")
    }
}

impl Display for Delete {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let flags = flags(&[(self.prev_kv, "prev_kv")]);
        write!(out, "delete {}{flags}", span(self.key, self.end))
    }
}

impl Display for Compare {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let is = match self.is {
            CompareOp::Equal => "=",
            CompareOp::NotEqual => "≠",
            CompareOp::Less => "<",
            CompareOp::Greater => ">",
        };
        let span = span(self.key, self.end);
        match &self.target {
            Target::Version(it) => write!(out, "version({span}) {is} {it}"),
            Target::Create(it) => write!(out, "create({span}) {is} {it}"),
            Target::Mod(it) => write!(out, "mod({span}) {is} {it}"),
            Target::Value(it) => write!(out, "value({span}) {is} {}", text(it)),
            Target::Lease(it) => write!(out, "lease({span}) {is} {it}"),
        }
    }
}

fn list<T: Display>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Display for Txn {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "txn if ({}) then {{ {} }} else {{ {} }}",
            list(&self.compares),
            list(&self.then),
            list(&self.otherwise)
        )
    }
}

impl Display for TxnOp {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range(it) => it.fmt(out),
            Self::Put(it) => it.fmt(out),
            Self::Delete(it) => it.fmt(out),
            Self::Txn(it) => it.fmt(out),
        }
    }
}

impl Display for Watch {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "watch {}", span(self.key, self.end))?;
        write!(out, " stream={} id={}", self.stream, self.id)?;
        if self.start != Rev::Plain(0) {
            write!(out, " start={}", self.start)?;
        }
        let flags = flags(&[
            (self.no_put, "no_put"),
            (self.no_delete, "no_delete"),
            (self.prev_kv, "prev_kv"),
            (self.fragment, "fragment"),
        ]);
        write!(out, "{flags}")
    }
}

impl Display for Op {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range(it) => it.fmt(out),
            Self::Put(it) => it.fmt(out),
            Self::Huge(bytes) => write!(out, "put of {bytes} bytes"),
            Self::Delete(it) => it.fmt(out),
            Self::Txn(it) => it.fmt(out),
            Self::Many(list, count) => write!(out, "txn with {count} in {list:?}"),
            Self::Compact { at, physical } => {
                write!(out, "compact {at}{}", flags(&[(*physical, "physical")]))
            }
            Self::Grant { lease, ttl } => write!(out, "grant {lease} ttl={ttl}"),
            Self::Revoke(lease) => write!(out, "revoke {lease}"),
            Self::TimeToLive { lease, keys } => {
                write!(out, "time-to-live {lease}{}", flags(&[(*keys, "keys")]))
            }
            Self::KeepAlive(lease) => write!(out, "keep-alive {lease}"),
            Self::KeepAliveRevoked(lease) => {
                write!(out, "keep-alive {lease}, revoke it, keep-alive again")
            }
            Self::Leases => write!(out, "leases"),
            Self::Watch(it) => it.fmt(out),
            Self::Cancel { stream, id } => write!(out, "cancel watch {id} on stream {stream}"),
            Self::Progress { stream } => write!(out, "ask stream {stream} for its progress"),
        }
    }
}
