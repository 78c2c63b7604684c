//! Refunds: an order is refunded once, over any number of requests and processes.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use etcd_locked::{LockError, etcd_locked};

use crate::bank::Bank;

/// The reason why there is no refund.
#[derive(Debug)]
pub(crate) enum Refused {
    PaidAlready,
    Lock(LockError),
}

impl From<LockError> for Refused {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

/// `POST /orders/{order}/refund`.
pub(crate) async fn handler(State(bank): State<Bank>, Path(order): Path<u64>) -> Response {
    match refund(&bank, order).await {
        Ok(()) => (StatusCode::OK, "refunded").into_response(),
        Err(Refused::PaidAlready) => (StatusCode::CONFLICT, "refunded before").into_response(),
        Err(Refused::Lock(LockError::Timeout { .. })) => {
            (StatusCode::LOCKED, "busy, try again").into_response()
        }
        // The bank may or may not have paid, which a person has to find out.
        Err(Refused::Lock(LockError::Lost { .. })) => {
            (StatusCode::BAD_GATEWAY, "broken off").into_response()
        }
        Err(Refused::Lock(_)) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// Reads, then pays: correct only if no other request does the same for this order meanwhile.
#[etcd_locked("orders/<order>", wait = "5s")]
async fn refund(bank: &Bank, order: u64) -> Result<(), Refused> {
    if bank.paid(order) > 0 {
        return Err(Refused::PaidAlready);
    }
    bank.pay(order).await;
    Ok(())
}
