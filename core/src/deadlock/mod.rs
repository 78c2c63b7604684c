//! Deadlock: cycles of calls that wait for each other, found and cut (rule P38).
//!
//! Inside the process a cycle is found by a walk over its own calls (`conductor/serving.rs`). Across processes a nested call whose
//! wait has stalled publishes *edges* ([`edges`]): small keys that lead from each key its task holds to the waiting key it depends
//! on. A search ([`search`]) reads contenders and edges until it is back where it began. The cycle is cut by one transaction that
//! deletes the victim's edges if every key of the cycle is still as it was read: no call is refused for a cycle that is not there,
//! and of two aborts of one cycle one succeeds. A group whose task holds nothing steps back instead.

pub mod edges;
pub mod search;

pub use edges::{Edge, Edges, STEP};
pub use search::{Cycle, Search, Searches};
