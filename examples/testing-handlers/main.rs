//! Handler with a lock, and its tests for contention, time-out and loss, without a server and in milliseconds.
//!
//! ```sh
//! cargo test -p etcd-locked-examples --bin testing-handlers
//! ```
//!
//! The service is like any other; the part to read is `tests.rs`.

mod bank;
mod refund;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use tokio::net::TcpListener;

use crate::bank::Bank;

/// Builds the service, for `main` and for the tests.
fn service(bank: Bank) -> Router {
    Router::new().route("/orders/{order}/refund", post(refund::handler)).with_state(bank)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The environment says where etcd is.
    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, service(Bank::open()))
        .with_graceful_shutdown(async {
            let _ = tokio::signal::ctrl_c().await;
        })
        .await?;
    etcd_locked::shutdown(Duration::from_secs(5)).await;
    Ok(())
}
