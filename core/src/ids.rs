//! Ids, names and keys: what calls, exchanges, watches and revisions are called, each as a type of its own; and how the keys and
//! values that etcd has are written and read.

use std::fmt;
use std::num::NonZeroI64;
use std::sync::Arc;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// Its number.
            #[allow(dead_code)] // not of every id
            pub const fn get(self) -> u64 {
                self.0
            }
        }

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
    };
}

id! {
    /// One call for locks, from the moment it is made until its locks are released.
    CallId
}
id! {
    /// One exchange with etcd.
    RequestId
}
id! {
    /// One watch.
    WatchId
}
id! {
    /// One session of this process, known before etcd has granted its lease.
    SessionId
}
/// One name of this process, as long as calls or contenders refer to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameId(u32);

impl NameId {
    /// The name at this place.
    pub fn at(place: usize) -> Self {
        Self(u32::try_from(place).unwrap_or(u32::MAX))
    }

    /// Its place among all names.
    pub fn place(self) -> usize {
        self.0 as usize
    }
}

/// One contender of this process: its name, and a number that is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContenderId {
    pub number: u64,
    pub name: NameId,
}

/// An etcd lease id.
pub type LeaseId = i64;

/// An etcd key of ours: always text, because names are escaped.
pub type Key = Arc<str>;

/// An etcd store revision.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(NonZeroI64);

impl Revision {
    /// The revision of this number; `None` for 0, which etcd uses for "no such key".
    pub const fn new(number: i64) -> Option<Self> {
        match NonZeroI64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Its number.
    pub const fn get(self) -> i64 {
        self.0.get()
    }
}

impl fmt::Debug for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A key in one incarnation: keys are used again (rule P14).
pub type Incarnation = (Key, Revision);

/// A lock name with its prefix, as it stands in etcd before the last `/` of its contenders' keys.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: Into<Arc<str>>> From<T> for Name {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

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

// The value of a key is its call's record, a JSON object that people read. Two more fields may end it, in this order, so that writing
// and reading them needs no JSON library: `"holds":[["<key>",<create revision>],…]` and `"group":["<key>",…]`.
const HOLDS: &str = ",\"holds\":[[\"";
const HOLDS_BETWEEN: &str = "],[\"";
const HOLDS_END: &str = "]]";
const GROUP: &str = ",\"group\":[\"";
const BETWEEN: &str = "\",\"";
const END: &str = "\"]";

/// Bytes of other keys in one field. A group with longer names is not followed by a search.
const ROOM: usize = 4096;

/// Keys that a value lists as held.
pub const HELD: usize = 64;

/// The value of one key of a call that has all these keys and whose task holds those: it names the others, for deadlock detection
/// (rule P38).
pub fn value_of(record: &Arc<[u8]>, own: &Key, keys: &[Key], holds: &[Incarnation]) -> Arc<[u8]> {
    let others = keys.iter().filter(|key| *key != own);
    let others: Vec<&str> = others.map(|key| &**key).collect();
    let plain = |key: &str| !key.contains(['"', '\\']);
    let group = others.join(BETWEEN);
    let holds = holds.iter().filter(|(key, _)| plain(key)).take(HELD);
    let holds: Vec<String> = holds.map(|(key, created)| format!("{key}\",{created}")).collect();
    let Some(object) = record.strip_suffix(b"}") else {
        return record.clone();
    };
    let mut value = object.to_vec();
    if !holds.is_empty() {
        let field = [HOLDS, &holds.join(HOLDS_BETWEEN), HOLDS_END].concat();
        value.extend(field.as_bytes());
    }
    if others.iter().all(|key| plain(key)) && !group.is_empty() && group.len() <= ROOM {
        value.extend([GROUP, &group, END].concat().as_bytes());
    }
    value.push(b'}');
    value.into()
}

/// A value up to its field of other keys, and these.
fn split_group(value: &[u8]) -> Option<(&str, Option<&str>)> {
    let object = std::str::from_utf8(value).ok()?.strip_suffix('}')?;
    let field = object.strip_suffix(END).and_then(|text| text.rsplit_once(GROUP));
    Some(field.map_or((object, None), |(rest, keys)| (rest, Some(keys))))
}

/// The other keys of the group that a value belongs to; none for a key that stands alone, or is not ours.
pub fn group_of(value: &[u8]) -> Vec<Key> {
    let keys = split_group(value).and_then(|(_, keys)| keys);
    let keys = keys.map(|keys| keys.split(BETWEEN).map(Key::from));
    keys.into_iter().flatten().collect()
}

/// The keys that a value lists as held by the task of its call.
pub fn holds_of(value: &[u8]) -> Vec<Incarnation> {
    let rest = split_group(value).and_then(|(rest, _)| rest.strip_suffix(HOLDS_END));
    let field = rest.and_then(|rest| rest.rsplit_once(HOLDS));
    let held = field.into_iter().flat_map(|(_, held)| held.split(HOLDS_BETWEEN)).take(HELD);
    let held = held.filter_map(|held| {
        let (key, created) = held.rsplit_once("\",")?;
        Some((key.into(), Revision::new(created.parse().ok()?)?))
    });
    held.collect()
}
