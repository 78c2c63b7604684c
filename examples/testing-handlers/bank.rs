//! Model of a bank: a remote system that takes its time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

/// The bank; clones are connections to the same one.
#[derive(Clone)]
pub(crate) struct Bank(Arc<Accounts>);

struct Accounts {
    /// The number of payments for each order.
    paid: Mutex<HashMap<u64, u32>>,
    /// The payments that may pass.
    gate: Semaphore,
}

impl Bank {
    /// Creates a bank in which payments pass at once.
    pub(crate) fn open() -> Self {
        Self::with_gate(Semaphore::MAX_PERMITS)
    }

    fn with_gate(permits: usize) -> Self {
        Self(Arc::new(Accounts { paid: Mutex::default(), gate: Semaphore::new(permits) }))
    }

    /// Returns how often an order was paid.
    pub(crate) fn paid(&self, order: u64) -> u32 {
        let paid = self.0.paid.lock().unwrap_or_else(PoisonError::into_inner);
        paid.get(&order).copied().unwrap_or(0)
    }

    /// Pays without any check, so the caller must know that the payment is due.
    pub(crate) async fn pay(&self, order: u64) {
        if let Ok(passed) = self.0.gate.acquire().await {
            passed.forget();
        }
        let mut paid = self.0.paid.lock().unwrap_or_else(PoisonError::into_inner);
        *paid.entry(order).or_default() += 1;
    }
}

#[cfg(test)]
impl Bank {
    /// Creates a bank in which each payment waits until the test lets it through.
    pub(crate) fn slow() -> Self {
        Self::with_gate(0)
    }

    /// Lets one payment through.
    pub(crate) fn let_one_through(&self) {
        self.0.gate.add_permits(1);
    }
}
