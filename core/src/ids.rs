//! Ids and names: what calls, exchanges, watches, keys and revisions are called, each as a type of its own.

use std::fmt;
use std::num::NonZeroI64;
use std::sync::Arc;

use crate::seat::Seat;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// Its number.
            #[must_use]
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
    #[must_use]
    pub const fn new(number: i64) -> Option<Self> {
        match NonZeroI64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0.get()
    }

    /// The revision after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(NonZeroI64::new(self.get().saturating_add(1)).unwrap_or(self.0))
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
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What all its contenders' keys begin with: the name and `/`.
    pub fn family(&self) -> Key {
        [&*self.0, "/"].concat().into()
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

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The key of a lease below a name's family: `<family><lease in hex><seat>` (rules P1, P37).
pub fn contender_key(family: &str, lease: LeaseId, seat: Seat) -> Key {
    format!("{family}{lease:x}{seat}").into()
}

/// Whether a key contends for the name of this family: a direct child of it, with no further `/` (rule P2).
pub fn contends(family: &str, key: &[u8]) -> bool {
    key.strip_prefix(family.as_bytes())
        .is_some_and(|child| !child.contains(&b'/'))
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
