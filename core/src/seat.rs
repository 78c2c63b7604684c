//! Mode and seat: how calls share a name, and how the last part of a key says so (rule P37).
//!
//! | key | seat |
//! |---|---|
//! | `<family><lease hex>` | exclusive: Go's own form |
//! | `<family><lease hex>.r<i>` | readers |
//! | `<family><lease hex>.p<i>` | one permit |
//! | `<family><lease hex>.n<i>`, `.n<i>.r` | a nested call, exclusive or a reader, beside what its process has there (rule P38) |
//! | any other child | exclusive, as nothing is known of it |
//!
//! Only older keys count (rule P14), so what is said here of two keys stays true for as long as both live.

use std::fmt;
use std::num::NonZeroU16;

/// What a call wants of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Mode {
    /// To be alone.
    #[default]
    Exclusive,
    /// To be one of any number of readers.
    Shared,
    /// To be one of at most so many. Calls of one name may differ in this number.
    Permits(NonZeroU16),
}

/// What a key below a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Seat {
    /// The name, alone.
    #[default]
    Exclusive,
    /// Readers of one process; a process may have several such keys, with different numbers.
    Shared(u16),
    /// One permit; the number tells keys of one process apart, and means nothing else.
    Permit(u16),
    /// The name for one nested call: alone, or among readers.
    Nested {
        /// The number tells keys of one process apart.
        number: u16,
        /// It is a reader's.
        shared: bool,
    },
}

impl Mode {
    /// Whether an older key on that seat excludes a call of this mode by itself. Permits do so only by their number.
    pub fn is_excluded_by(self, older: Seat) -> bool {
        use Mode::{Permits, Shared};
        !matches!((self, older.mode()), (Shared, Shared) | (Permits(_), Permits(_)))
    }

    /// How many older keys of its own kind leave room for a call; `None`: any number.
    pub fn room(self) -> Option<usize> {
        match self {
            Mode::Exclusive => Some(0),
            Mode::Shared => None,
            Mode::Permits(of) => Some(usize::from(of.get()) - 1),
        }
    }
}

impl Seat {
    /// What a key says: everything behind its last `/`.
    pub fn of_key(key: &[u8]) -> Self {
        let child = key.rsplit(|byte| *byte == b'/').next();
        Self::parse(child.unwrap_or_default()).unwrap_or(Self::Exclusive)
    }

    /// What tells it from other seats of its process.
    pub fn number(self) -> Option<u16> {
        match self {
            Self::Exclusive => None,
            Self::Shared(number) | Self::Permit(number) | Self::Nested { number, .. } => {
                Some(number)
            }
        }
    }

    /// How a call on it shares the name; of how many permits it is one, the seat does not say.
    pub fn mode(self) -> Mode {
        match self {
            Self::Shared(_) | Self::Nested { shared: true, .. } => Mode::Shared,
            Self::Permit(_) => Mode::Permits(NonZeroU16::MIN),
            Self::Exclusive | Self::Nested { shared: false, .. } => Mode::Exclusive,
        }
    }

    fn parse(child: &[u8]) -> Option<Self> {
        let (lease, suffix) = str::from_utf8(child).ok()?.split_once('.')?;
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let (kind, rest) = suffix.split_at_checked(1)?;
        let (number, shared) = rest.strip_suffix(".r").map_or((rest, false), |rest| (rest, true));
        // One way to write each, or two keys could be one permit.
        let is_plain = number == "0" || !number.starts_with(['0', '+']);
        if lease.is_empty() || !lease.bytes().all(is_hex) || !is_plain {
            return None;
        }
        let number = number.parse().ok()?;
        match (kind, shared) {
            ("r", false) => Some(Self::Shared(number)),
            ("p", false) => Some(Self::Permit(number)),
            ("n", shared) => Some(Self::Nested { number, shared }),
            _ => None,
        }
    }
}

/// Writes what a key ends with, behind its lease.
impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => Ok(()),
            Self::Shared(number) => write!(f, ".r{number}"),
            Self::Permit(number) => write!(f, ".p{number}"),
            Self::Nested { number, shared } => {
                write!(f, ".n{number}{}", if *shared { ".r" } else { "" })
            }
        }
    }
}

/// Whether keys as old as these admit a call of this mode: all that are older than its own.
pub fn admits<'a>(mode: Mode, older: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut before = 0;
    let mut older = older.map(Seat::of_key);
    !older.any(|seat| {
        before += 1;
        mode.is_excluded_by(seat) || mode.room().is_some_and(|room| before > room)
    })
}
