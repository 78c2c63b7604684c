//! Random numbers from a seed.

use std::time::Duration;

/// A splitmix64: the same seed gives the same numbers on every machine.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    pub(crate) fn chance(&mut self, share: f64) -> bool {
        (self.below(10_000) as f64) < share * 10_000.0
    }

    pub(crate) fn micros(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_micros(from + self.below(to - from))
    }

    pub(crate) fn millis(&mut self, from: u64, to: u64) -> Duration {
        self.micros(from * 1000, to * 1000)
    }

    /// Returns one of several.
    pub(crate) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len().max(1) as u64) as usize)
    }
}
