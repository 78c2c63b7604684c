//! Ring of endpoints: where exchanges begin, and which endpoint comes next (rule P32).

use std::sync::{Arc, Mutex};

use super::endpoint::Endpoint;
use crate::mutex::lock;

/// All endpoints of a client, the current one first. They change with the member list, if that is followed, and with the addresses of
/// names.
#[derive(Default)]
pub(super) struct Ring(Mutex<Vec<Arc<Endpoint>>>);

impl Ring {
    pub(super) fn round(&self) -> Vec<Arc<Endpoint>> {
        lock(&self.0).clone()
    }

    /// Returns the first endpoint that was not tried. The endpoints may change between two of these calls.
    pub(super) fn next(&self, asked: &[Arc<Endpoint>]) -> Option<Arc<Endpoint>> {
        let was_asked = |it: &Arc<Endpoint>| asked.iter().any(|other| Arc::ptr_eq(it, other));
        lock(&self.0).iter().find(|it| !was_asked(it)).cloned()
    }

    /// Makes exchanges begin at another endpoint, unless another exchange has already done so.
    pub(super) fn move_on(&self, from: &Arc<Endpoint>) {
        let mut round = lock(&self.0);
        if round.first().is_some_and(|current| Arc::ptr_eq(current, from)) {
            round.rotate_left(1);
        }
    }

    /// Replaces the endpoints. The current one stays current if it is among them; otherwise `first` chooses another.
    pub(super) fn replace(&self, mut endpoints: Vec<Arc<Endpoint>>, first: usize) {
        let mut round = lock(&self.0);
        let is_current = |it| round.first().is_some_and(|current| Arc::ptr_eq(current, it));
        let current = endpoints.iter().position(is_current);
        let others = endpoints.len().max(1);
        endpoints.rotate_left(current.unwrap_or(first % others));
        *round = endpoints;
    }
}
