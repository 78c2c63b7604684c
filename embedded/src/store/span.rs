//! Span of keys: the `key` and `range_end` of a request.

use std::ops::Bound;

type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Keys that `key` and `range_end` of a request select, by etcd's rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span<'a> {
    /// No `range_end`: this key.
    One(&'a [u8]),
    /// `range_end` is a lone zero byte: this key and all greater ones.
    From(&'a [u8]),
    /// From the first key up to the second, excluding the second. Empty unless the second is greater.
    Between(&'a [u8], &'a [u8]),
}

impl<'a> Span<'a> {
    pub(crate) fn new(key: &'a [u8], range_end: &'a [u8]) -> Self {
        match range_end {
            [] => Self::One(key),
            [0] => Self::From(key),
            _ => Self::Between(key, range_end),
        }
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        match *self {
            Self::One(only) => key == only,
            Self::From(first) => key >= first,
            Self::Between(first, end) => first <= key && key < end,
        }
    }

    /// Returns the bounds for a map's `range`, which panics on reversed bounds; `None` if the span is empty.
    pub(super) fn bounds(&self) -> Option<Bounds<'a>> {
        match *self {
            Self::One(only) => Some((Bound::Included(only), Bound::Included(only))),
            Self::From(first) => Some((Bound::Included(first), Bound::Unbounded)),
            Self::Between(first, end) => {
                (first < end).then_some((Bound::Included(first), Bound::Excluded(end)))
            }
        }
    }
}
