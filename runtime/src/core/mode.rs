//! How a call shares its names with others, and how the last part of a key says so (rule P37). Pure.
//!
//! | key | mode |
//! |---|---|
//! | `<family><lease hex>` | exclusive: Go's own form |
//! | `<family><lease hex>.r` | shared |
//! | `<family><lease hex>.p<N>.<i>` | the permit `i` of `N` |
//! | any other child | exclusive, as nothing is known of it |
//!
//! Only older keys count (rule P14), so what is said here of two keys stays true for as long as both live.

use std::fmt::{self, Write};
use std::num::NonZeroU16;

use crate::core::request::LeaseId;

/// What a call wants of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Mode {
    /// To be alone.
    #[default]
    Exclusive,
    /// To be beside others that share.
    Shared,
    /// To be one of at most so many.
    Permits(NonZeroU16),
}

/// What a key below a name stands for. A process has one live key a lease for each seat of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Seat {
    Exclusive,
    Shared,
    Permit { of: NonZeroU16, index: u16 },
}

impl Mode {
    /// Whether an older key on that seat keeps a call of this mode waiting by itself. Permits of one number do so only where
    /// there are as many as that: see [`Mode::beside`].
    pub(crate) fn is_excluded_by(self, older: Seat) -> bool {
        match self {
            Mode::Exclusive => true,
            Mode::Shared | Mode::Permits(_) => !self.goes_with(older.mode()),
        }
    }

    /// Whether calls of these modes may have a name together.
    pub(crate) fn goes_with(self, other: Self) -> bool {
        self == other && self != Mode::Exclusive
    }

    /// How many older keys of its own kind a call may have beside it; `None`: any number.
    pub(crate) fn beside(self) -> Option<usize> {
        match self {
            Mode::Exclusive => Some(0),
            Mode::Shared => None,
            Mode::Permits(of) => Some(usize::from(of.get()) - 1),
        }
    }

    /// The other number of permits, if that seat is one of those.
    pub(crate) fn mismatch(self, other: Seat) -> Option<NonZeroU16> {
        match (self, other) {
            (Mode::Permits(ours), Seat::Permit { of, .. }) if of != ours => Some(of),
            _ => None,
        }
    }
}

impl Seat {
    /// What the last part of a key says.
    pub(crate) fn of_child(child: &[u8]) -> Self {
        Self::read(child).unwrap_or(Self::Exclusive)
    }

    /// What a key says: all behind its last `/`.
    pub(crate) fn of_key(key: &[u8]) -> Self {
        let child = key.rsplit(|byte| *byte == b'/').next();
        Self::of_child(child.unwrap_or_default())
    }

    fn read(child: &[u8]) -> Option<Self> {
        let (lease, suffix) = std::str::from_utf8(child).ok()?.split_once('.')?;
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (!lease.is_empty() && lease.bytes().all(hex)).then_some(())?;
        if suffix == "r" {
            return Some(Self::Shared);
        }
        let (of, index) = suffix.strip_prefix('p')?.split_once('.')?;
        let seat = Self::Permit {
            of: of.parse().ok()?,
            index: index.parse().ok()?,
        };
        // One way to write each, or two keys could be one permit.
        (seat.is_there() && seat.to_string() == format!(".{suffix}")).then_some(seat)
    }

    fn is_there(self) -> bool {
        match self {
            Self::Permit { of, index } => index < of.get(),
            Self::Exclusive | Self::Shared => true,
        }
    }

    pub(crate) fn mode(self) -> Mode {
        match self {
            Self::Exclusive => Mode::Exclusive,
            Self::Shared => Mode::Shared,
            Self::Permit { of, .. } => Mode::Permits(of),
        }
    }
}

/// What a key ends with.
impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => Ok(()),
            Self::Shared => f.write_str(".r"),
            Self::Permit { of, index } => write!(f, ".p{of}.{index}"),
        }
    }
}

/// Whether keys as old as these let a call of this mode in: all that are older than its own.
pub(crate) fn lets_in<'a>(mode: Mode, older: impl Iterator<Item = &'a [u8]>) -> bool {
    let in_the_way = |(beside, key): (usize, &[u8])| {
        mode.is_excluded_by(Seat::of_key(key)) || mode.beside().is_some_and(|room| beside >= room)
    };
    !older.enumerate().any(in_the_way)
}

/// Writes the last part of a key.
pub(crate) fn write_child(key: &mut String, lease: LeaseId, seat: Seat) {
    let _ = write!(key, "{lease:x}"); // a string takes all
    if seat != Seat::Exclusive {
        let _ = write!(key, "{seat}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permit(of: u16, index: u16) -> Seat {
        let of = NonZeroU16::new(of).expect("not zero");
        Seat::Permit { of, index }
    }

    #[test]
    fn a_key_says_what_it_is_for() {
        for (child, seat) in [
            ("694d8a", Seat::Exclusive),
            ("694d8a.r", Seat::Shared),
            ("694d8a.p5.0", permit(5, 0)),
            ("694d8a.p65535.65534", permit(65535, 65534)),
            // What we would not write says nothing.
            ("zz", Seat::Exclusive),
            (".r", Seat::Exclusive),
            ("694D8A.r", Seat::Exclusive),
            ("694d8a.r.r", Seat::Exclusive),
            ("694d8a.p5.5", Seat::Exclusive),
            ("694d8a.p0.0", Seat::Exclusive),
            ("694d8a.p05.0", Seat::Exclusive),
            ("694d8a.p+5.0", Seat::Exclusive),
            ("694d8a.p5", Seat::Exclusive),
            ("694d8a.p65536.0", Seat::Exclusive),
        ] {
            assert_eq!(Seat::of_child(child.as_bytes()), seat, "{child}");
        }
        for seat in [Seat::Exclusive, Seat::Shared, permit(7, 3)] {
            assert_eq!(Seat::of_child(format!("a0{seat}").as_bytes()), seat);
        }
    }

    #[test]
    fn older_keys_let_in_who_may_be_beside_them() {
        let permits = |n| Mode::Permits(NonZeroU16::new(n).expect("not zero"));
        let lets_in =
            |mode, older: &[&str]| super::lets_in(mode, older.iter().map(|key| key.as_bytes()));
        assert!(lets_in(Mode::Exclusive, &[]));
        assert!(!lets_in(Mode::Exclusive, &["l/a/1.r"]));
        assert!(!lets_in(Mode::Exclusive, &["l/a/1.p5.0"]));
        assert!(lets_in(Mode::Shared, &["l/a/1.r", "l/a/2.r"]));
        assert!(!lets_in(Mode::Shared, &["l/a/1.r", "l/a/zz"]));
        assert!(!lets_in(Mode::Shared, &["l/a/1.p5.0"]));
        assert!(lets_in(permits(3), &["l/a/1.p3.0", "l/a/1.p3.2"]));
        assert!(!lets_in(
            permits(3),
            &["l/a/1.p3.0", "l/a/1.p3.2", "l/a/2.p3.0"]
        ));
        assert!(!lets_in(permits(3), &["l/a/1.p4.0"]));
        assert!(!lets_in(permits(3), &["l/a/1.r"]));
        assert!(!lets_in(permits(3), &["l/a/1"]));
        assert_eq!(permits(3).mismatch(permit(4, 0)), NonZeroU16::new(4));
        assert_eq!(permits(3).mismatch(permit(3, 0)), None);
        assert_eq!(permits(3).mismatch(Seat::Shared), None);
    }
}
