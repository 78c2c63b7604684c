//! Data in transit: what a proxy has received from one side of a connection, and not yet passed on to the other.
//!
//! Each chunk has its own time of arrival, from which its delay counts, as on a long line. Otherwise a chunk that arrives while
//! another one waits would wait for nearly twice the delay.

use std::collections::VecDeque;
use std::time::Instant;

/// Bytes from which on the sender has to wait, as it does when the window of TCP is full.
const WINDOW: usize = 1 << 20;

/// Chunks of one direction, in the order of their arrival.
#[derive(Debug, Default)]
pub(crate) struct Transit {
    chunks: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    /// True once the sender has hung up or is gone.
    is_over: bool,
}

impl Transit {
    /// Takes in a chunk; an empty one means that the sender has hung up.
    pub(crate) fn push(&mut self, arrived: Instant, chunk: &[u8]) {
        self.bytes += chunk.len();
        self.is_over |= chunk.is_empty();
        self.chunks.push_back((arrived, chunk.to_vec()));
    }

    /// Notes that the sender is gone without a hang-up.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
    }

    /// Returns whether the sender has hung up or is gone.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns whether the sender may send more.
    pub(crate) fn has_room(&self) -> bool {
        !self.is_over && self.bytes < WINDOW
    }

    /// Returns the next chunk to pass on, with the time of its arrival.
    pub(crate) fn oldest(&self) -> Option<(Instant, &[u8])> {
        let (arrived, chunk) = self.chunks.front()?;
        Some((*arrived, chunk))
    }

    /// Removes the oldest chunk, which was passed on.
    pub(crate) fn pop(&mut self) {
        let chunk = self.chunks.pop_front();
        self.bytes -= chunk.map_or(0, |(_, chunk)| chunk.len());
    }

    /// Returns the number of chunks.
    pub(crate) fn len(&self) -> usize {
        self.chunks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_window_has_no_room_until_a_chunk_has_passed() {
        let mut transit = Transit::default();
        let now = Instant::now();
        transit.push(now, &vec![0; WINDOW - 1]);
        assert!(transit.has_room());
        transit.push(now, b"x");
        assert!(!transit.has_room());
        transit.pop();
        assert!(transit.has_room());
    }
}
