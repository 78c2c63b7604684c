//! Mode and seat: how calls share a name, and how the last part of a key encodes that (rule P37).
//!
//! | key | seat |
//! |---|---|
//! | `<family><lease hex>` | exclusive, in the form of Go's mutex |
//! | `<family><lease hex>.r<i>` | readers |
//! | `<family><lease hex>.p<i>` | one permit |
//! | `<family><lease hex>.n<i>`, `.n<i>.r` | a nested call, exclusive or a reader, beside other keys of its process (rule P38) |
//! | any other child | exclusive, because nothing is known about it |
//!
//! Only older keys count (rule P14). So whether one key excludes another does not change while both exist.

use std::fmt;
use std::num::NonZeroU16;

/// How a call wants to hold its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Mode {
    /// Alone.
    #[default]
    Exclusive,
    /// Together with any number of readers.
    Shared,
    /// Together with others, this many at most. Calls of one name may differ in the number.
    Permits(NonZeroU16),
}

/// How the holder of a key holds the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Seat {
    /// Alone.
    #[default]
    Exclusive,
    /// Readers of one process. A process may have several such keys, with different numbers.
    Shared(u16),
    /// One permit. The number only distinguishes the keys of one process.
    Permit(u16),
    /// One nested call, alone or among readers.
    Nested {
        /// Distinguishes the keys of one process.
        number: u16,
        /// The call is a reader.
        shared: bool,
    },
}

impl Mode {
    /// Returns true if a single older key on such a seat excludes a call of this mode. Older permits exclude only by their number.
    pub fn is_excluded_by(self, older: Seat) -> bool {
        use Mode::{Permits, Shared};
        !matches!((self, older.mode()), (Shared, Shared) | (Permits(_), Permits(_)))
    }

    /// Returns how many older keys of its own kind a call tolerates; `None`: any number.
    pub fn room(self) -> Option<usize> {
        match self {
            Mode::Exclusive => Some(0),
            Mode::Shared => None,
            Mode::Permits(of) => Some(usize::from(of.get()) - 1),
        }
    }
}

impl Seat {
    /// Parses the last part of a key.
    pub fn of_key(key: &[u8]) -> Self {
        let child = key.rsplit(|byte| *byte == b'/').next();
        Self::parse(child.unwrap_or_default()).unwrap_or(Self::Exclusive)
    }

    /// Returns the number that distinguishes it from other seats of its process.
    pub fn number(self) -> Option<u16> {
        match self {
            Self::Exclusive => None,
            Self::Shared(of) | Self::Permit(of) | Self::Nested { number: of, .. } => Some(of),
        }
    }

    /// Returns the mode of a call on this seat. A seat does not contain the number of permits, so that is 1.
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
        // Only one spelling of each number is accepted. Otherwise two keys could be the same permit.
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

/// Writes what follows the lease in a key.
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

/// Returns true if a call of this mode is admitted. `older` must contain all keys of the name that are older than its own.
pub fn admits<'a>(mode: Mode, older: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut before = 0;
    let mut older = older.map(Seat::of_key);
    !older.any(|seat| {
        before += 1;
        mode.is_excluded_by(seat) || mode.room().is_some_and(|room| before > room)
    })
}
