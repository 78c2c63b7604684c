//! Ids, names and keys, and the text format of the keys and values stored in etcd.

use std::num::NonZeroI64;
use std::sync::Arc;

use crate::request::Kv;

/// One call for locks, from its arrival until its locks are released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// One exchange with etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub u64);

/// One session of this process. The id exists before etcd grants the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SessionId(pub u64);

/// One lock name, while a call or a contender of this process refers to it. The number is its index in the list of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameId(pub usize);

/// One contender of this process: its name, and a number that is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContenderId {
    pub number: u64,
    pub name: NameId,
}

/// The contenders of one call. One transaction puts them (rule P13).
pub type Unit = Arc<[ContenderId]>;

/// An etcd lease id.
pub type LeaseId = i64;

/// A key of this process, or a lock name with its prefix. It is always text, because names are escaped.
pub type Key = Arc<str>;

/// An etcd store revision. It is never 0, which etcd uses for "no such key".
pub type Revision = NonZeroI64;

/// A key with its create revision, because keys are reused (rule P14).
pub type Incarnation = (Key, Revision);

/// Returns true if a key is a direct child of the family, and so contends for its name (rule P2).
pub fn contends(family: &str, key: &[u8]) -> bool {
    key.strip_prefix(family.as_bytes()).is_some_and(|child| !child.contains(&b'/'))
}

/// Returns the lease in a key's name, if the key has the form of ours.
pub fn lease_of(key: &[u8]) -> Option<LeaseId> {
    let child = key.rsplit(|byte| *byte == b'/').next()?;
    let hex = std::str::from_utf8(child).ok()?.split('.').next()?;
    LeaseId::from_str_radix(hex, 16).ok()
}

/// Returns the part of a key up to and including its last `/`; `None` if it does not contain one.
pub fn family_of(key: &str) -> Option<&str> {
    key.get(..=key.rfind('/')?)
}

/// Returns the start of all session keys: `<prefix without its last "/">%s/`. No lock name contains `%s`, because names are
/// escaped as `%` and two hex digits (rule P10b).
pub fn session_root(prefix: &str) -> String {
    format!("{}%s/", prefix.strip_suffix('/').unwrap_or(prefix))
}

// A key's value is the record of its call, a JSON object for people. For deadlock detection the object ends with one more field,
// in a fixed form that needs no JSON library: `"keys":[["<key>",<create revision>],…]` (rule P38).
const KEYS: &str = ",\"keys\":[[\"";
const REVISION: &str = "\",";
const BETWEEN: &str = "],[\"";
const END: &str = "]]}";

/// The most bytes of one list, so that a full transaction stays well below etcd's limit of 1.5 MiB. Searches miss keys beyond that.
const ROOM: usize = 8192;

/// The most held keys that a value lists.
pub const HELD: usize = 64;

/// Appends other keys of the call's task to its record. Keys of its group have `None`: they share this key's create revision.
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

/// Returns the other keys of the task that a value lists. Those of its group get the create revision of the key itself.
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
