//! Where a process may have a key below a name: one place for each seat (rules P4, P37).
//!
//! All that happens to a key, from its put to its deletion, happens to a place, so places are what this core's maps, timers
//! and transactions go by. The exclusive one is called as the name itself, which most names have alone; the others
//! `<name>!r<ttl>` and `<name>!p<N>.<i>`: `!` stands in no name. Readers of different TTLs are under different leases, and so
//! have different keys. In a map all places of a name follow each other, the exclusive one first.

use std::num::NonZeroU16;

use crate::core::mode::{self, Seat};
use crate::core::request::{Key, LeaseId};

/// The place of the readers of a TTL.
pub(crate) fn shared(name: &str, ttl_secs: i64) -> Key {
    format!("{name}!r{ttl_secs}").into()
}

/// The place of a permit.
pub(crate) fn permit(name: &str, of: NonZeroU16, index: u16) -> Key {
    format!("{name}!p{of}.{index}").into()
}

/// The name that a place is of. A prefix may have a `!`, but ends in `/`.
pub(crate) fn name_of(place: &str) -> &str {
    split(place).0
}

/// What is behind the name, if it is not the exclusive place.
fn split(place: &str) -> (&str, &str) {
    match place.rfind(['/', '!']) {
        Some(at) if place.as_bytes().get(at) == Some(&b'!') => (
            place.get(..at).unwrap_or(place),
            place.get(at + 1..).unwrap_or(""),
        ),
        _ => (place, ""),
    }
}

/// What a key in this place says.
pub(crate) fn seat_of(place: &str) -> Seat {
    let (_, tail) = split(place);
    let permit = || {
        let (of, index) = tail.strip_prefix('p')?.split_once('.')?;
        Some(Seat::Permit {
            of: of.parse().ok()?,
            index: index.parse().ok()?,
        })
    };
    match tail.starts_with('r') {
        true => Seat::Shared,
        false => permit().unwrap_or(Seat::Exclusive),
    }
}

/// What all contenders' keys of the place's name begin with.
pub(crate) fn family_of(place: &str) -> Key {
    [name_of(place), "/"].concat().into()
}

/// The key of a lease in this place.
pub(crate) fn own_key(place: &str, lease: LeaseId) -> Key {
    key(&family_of(place), lease, seat_of(place))
}

/// `<family><lease id in hex>`, and what says the mode: the key of a lease below a name (rules P1, P37).
pub(crate) fn key(family: &str, lease: LeaseId, seat: Seat) -> Key {
    let mut key = String::with_capacity(family.len() + 28);
    key.push_str(family);
    mode::write_child(&mut key, lease, seat);
    key.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_tells_its_name_and_its_seat() {
        let of = NonZeroU16::new(5).expect("not zero");
        let permit = permit("l!/a/b", of, 3);
        let shared = shared("l!/a/b", 15);
        assert_eq!(name_of("l!/a/b"), "l!/a/b");
        assert_eq!(name_of(&shared), "l!/a/b");
        assert_eq!(name_of(&permit), "l!/a/b");
        assert_eq!(&*own_key("l!/a/b", 0xa1), "l!/a/b/a1");
        assert_eq!(&*own_key(&shared, 0xa1), "l!/a/b/a1.r");
        assert_eq!(&*own_key(&permit, 0xa1), "l!/a/b/a1.p5.3");
        assert!("l!/a/b" < &*shared && "l!/a/b%21" > &*shared && "l!/a/b/c" > &*shared);
    }
}
