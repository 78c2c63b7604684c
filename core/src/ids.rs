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
id! {
    /// One contender of this process, in one life: ids are never used again.
    ContenderId
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

/// The family a key is a direct child of: everything up to its last `/`, that included; `None` if it has none.
pub fn family_of(key: &str) -> Option<&str> {
    key.get(..=key.rfind('/')?)
}

/// What the keys of all edges of a held key begin with; `root`: what session keys begin with (rule P38).
pub fn edges_of(root: &str, held: &str) -> Key {
    format!("{root}w/{held}%/").into()
}

/// What all session keys and edges begin with: `<prefix without its last "/">%s/`. `%s` can come out of no name, because
/// every escape is `%` and two hex digits (rule P10b).
pub fn session_root(prefix: &str) -> String {
    format!("{}%s/", prefix.strip_suffix('/').unwrap_or(prefix))
}

/// The session key of a lease.
pub fn session_key(root: &str, lease: LeaseId) -> Key {
    format!("{root}{lease:x}").into()
}

// The value of a key is its call's record, a JSON object that people read. A group's keys end it with one more field,
// `"group":["<key>",…]`, always the last one, so that writing and reading it needs no JSON library.
const GROUP: &str = ",\"group\":[\"";
const BETWEEN: &str = "\",\"";
const END: &str = "\"]}";

/// Bytes of other keys in one value. A group with longer names is not followed by a search.
const ROOM: usize = 4096;

/// The value of one key of a group that has all these keys: it names the others, for deadlock detection (rule P38).
pub fn value_of(record: &Arc<[u8]>, own: &Key, keys: &[Key]) -> Arc<[u8]> {
    let others = keys.iter().filter(|key| *key != own);
    let others: Vec<&str> = others.map(|key| &**key).collect();
    let plain = others.iter().all(|key| !key.contains(['"', '\\']));
    let list = others.join(BETWEEN);
    match record.strip_suffix(b"}") {
        Some(object) if plain && !list.is_empty() && list.len() <= ROOM => {
            let field = [GROUP, &list, END].concat();
            [object, field.as_bytes()].concat().into()
        }
        _ => record.clone(),
    }
}

/// The other keys of the group that a value belongs to; none for a key that stands alone, or is not ours.
pub fn group_of(value: &[u8]) -> Vec<Key> {
    let text = std::str::from_utf8(value).ok();
    let text = text.and_then(|text| text.strip_suffix(END));
    let field = text.and_then(|text| text.rsplit_once(GROUP));
    let keys = field.map(|(_, keys)| keys.split(BETWEEN).map(Key::from));
    keys.into_iter().flatten().collect()
}
