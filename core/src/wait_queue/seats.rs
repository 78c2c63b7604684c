//! Seats: which seats of one name this process's contenders take (rules P4, P37).

use std::collections::BTreeSet;

use crate::mistakes::{Mistake, mistake};
use crate::seat::{Mode, Seat};

/// Numbers in use, each found and given back in logarithmic time; the smallest ones are used again first.
#[derive(Debug, Default)]
struct Numbers {
    given_back: BTreeSet<u16>,
    next: u16,
}

impl Numbers {
    fn free(&self) -> Option<u16> {
        let given_back = self.given_back.first().copied();
        given_back.or((self.next < u16::MAX).then_some(self.next))
    }

    fn take(&mut self, number: u16) {
        if !self.given_back.remove(&number) && number == self.next {
            self.next += 1;
        }
    }

    fn give_back(&mut self, number: u16) {
        self.given_back.insert(number);
        while self.next > 0 && self.given_back.remove(&(self.next - 1)) {
            self.next -= 1;
        }
    }
}

/// The seats of one name that this process's contenders take.
#[derive(Debug, Default)]
pub struct Seats {
    exclusive: bool,
    shared: Numbers,
    permits: Numbers,
    permits_held: usize,
}

impl Seats {
    /// The seat that a contender of this mode would take; `None`: it has to wait for one.
    pub fn free(&self, mode: Mode) -> Option<Seat> {
        match mode {
            Mode::Exclusive if mistake(Mistake::PutDuringDelete) => Some(Seat::Exclusive),
            Mode::Exclusive => (!self.exclusive).then_some(Seat::Exclusive),
            Mode::Shared => self.shared.free().map(Seat::Shared),
            // Where all permits are held here, a contender would only wait for one of these.
            Mode::Permits(of) if self.permits_held >= usize::from(of.get()) => None,
            Mode::Permits(_) => self.permits.free().map(Seat::Permit),
        }
    }

    pub fn take(&mut self, seat: Seat) {
        match seat {
            Seat::Exclusive => self.exclusive = true,
            Seat::Shared(number) => self.shared.take(number),
            Seat::Permit(number) => self.permits.take(number),
        }
    }

    pub fn give_back(&mut self, seat: Seat) {
        match seat {
            Seat::Exclusive => self.exclusive = false,
            Seat::Shared(number) => self.shared.give_back(number),
            Seat::Permit(number) => self.permits.give_back(number),
        }
    }

    /// Calls hold a permit.
    pub fn hold(&mut self, seat: Seat) {
        self.permits_held += usize::from(matches!(seat, Seat::Permit(_)));
    }

    /// Calls hold it no longer.
    pub fn unhold(&mut self, seat: Seat) {
        self.permits_held -= usize::from(matches!(seat, Seat::Permit(_)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again() {
        let mut numbers = Numbers::default();
        for number in 0..4 {
            assert_eq!(numbers.free(), Some(number));
            numbers.take(number);
        }
        numbers.give_back(1);
        assert_eq!(numbers.free(), Some(1));
        numbers.give_back(3);
        numbers.take(1);
        assert_eq!(numbers.free(), Some(3));
        for number in 0..3 {
            numbers.give_back(number);
        }
        assert_eq!((numbers.free(), numbers.given_back.len()), (Some(0), 0));
    }
}
