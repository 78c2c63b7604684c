//! Ids, names and keys; and how the keys and values that etcd has are written and read.

use std::fmt;
use std::num::NonZeroI64;
use std::sync::Arc;

use crate::request::Kv;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl From<u64> for $name {
            fn from(number: u64) -> Self {
                Self(number)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

ids! {
    /// One call for locks, from the moment it is made until its locks are released.
    CallId,
    /// One exchange with etcd.
    RequestId,
    /// One watch.
    WatchId,
    /// One session of this process, known before etcd has granted its lease.
    #[derive(Default)]
    SessionId,
}

/// One name of this process, as long as calls or contenders refer to it: its place among all names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameId(pub usize);

/// One contender of this process: its name, and a number that is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContenderId {
    pub number: u64,
    pub name: NameId,
}

/// The contenders of one call, which are put in one transaction (rule P13).
pub type Unit = Arc<[ContenderId]>;

/// An etcd lease id.
pub type LeaseId = i64;

/// A key of ours, or a lock name with its prefix: always text, because names are escaped.
pub type Key = Arc<str>;

/// An etcd store revision; never 0, which etcd uses for "no such key".
pub type Revision = NonZeroI64;

/// A key in one incarnation: keys are used again (rule P14).
pub type Incarnation = (Key, Revision);

/// Whether a key contends for the name of this family: a direct child of it, with no further `/` (rule P2).
pub fn contends(family: &str, key: &[u8]) -> bool {
    key.strip_prefix(family.as_bytes()).is_some_and(|child| !child.contains(&b'/'))
}

/// The lease that a key is named after, if it is one of ours.
pub fn lease_of(key: &[u8]) -> Option<LeaseId> {
    let child = key.rsplit(|byte| *byte == b'/').next()?;
    let hex = std::str::from_utf8(child).ok()?.split('.').next()?;
    LeaseId::from_str_radix(hex, 16).ok()
}

/// The family a key is a direct child of: everything up to its last `/`, that included; `None` if it has none.
pub fn family_of(key: &str) -> Option<&str> {
    key.get(..=key.rfind('/')?)
}

/// What all session keys begin with: `<prefix without its last "/">%s/`. `%s` can come out of no name, because
/// every escape is `%` and two hex digits (rule P10b).
pub fn session_root(prefix: &str) -> String {
    format!("{}%s/", prefix.strip_suffix('/').unwrap_or(prefix))
}

/// The session key of a lease.
pub fn session_key(root: &str, lease: LeaseId) -> Key {
    format!("{root}{lease:x}").into()
}

// The value of a key is its call's record, a JSON object that people read. For deadlock detection one more field ends it, in a form
// that needs no JSON library: `"keys":[["<key>",<create revision>],…]` (rule P38).
const KEYS: &str = ",\"keys\":[[\"";
const REVISION: &str = "\",";
const BETWEEN: &str = "],[\"";
const END: &str = "]]}";

/// Bytes of one list: a full bundle stays below the 512 KiB of rule P6. Keys that have no room are not followed by a search.
const ROOM: usize = 8192;

/// Keys that a value lists as held.
pub const HELD: usize = 64;

/// A call's record, with other keys of its task: those it holds, and those of its group, which are as old as the key (`None`).
pub fn value_of(record: &Arc<[u8]>, keys: &[(Key, Option<Revision>)]) -> Arc<[u8]> {
    let plain = keys.iter().filter(|(key, _)| !key.contains(['"', '\\']));
    let entry = |(key, created): &(Key, Option<Revision>)| {
        format!("{key}{REVISION}{}", created.map_or(0, Revision::get))
    };
    let mut room = ROOM;
    let fits = |entry: &String| {
        room = room.saturating_sub(entry.len() + BETWEEN.len());
        room > 0
    };
    let list = plain.map(entry).take_while(fits).collect::<Vec<_>>().join(BETWEEN);
    match record.strip_suffix(b"}") {
        Some(object) if !list.is_empty() => {
            [object, KEYS.as_bytes(), list.as_bytes(), END.as_bytes()].concat().into()
        }
        _ => record.clone(),
    }
}

/// The other keys of a task that the value of its key lists. Those of its group have the create revision of the key.
pub fn listed_by(kv: &Kv) -> Vec<Incarnation> {
    let object = str::from_utf8(&kv.value).ok().and_then(|value| value.strip_suffix(END));
    let list = object.and_then(|object| object.rsplit_once(KEYS));
    let entries = list.into_iter().flat_map(|(_, list)| list.split(BETWEEN)).take(2 * HELD);
    let keys = entries.filter_map(|entry| {
        let (key, created) = entry.rsplit_once(REVISION)?;
        Some((key.into(), Revision::new(created.parse().ok()?).unwrap_or(kv.create_revision)))
    });
    keys.collect()
}
