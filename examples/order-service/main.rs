//! Order service that runs in any number of processes. To sell a piece, it reads the stock, waits for the payment and writes the
//! stock back. A lock for each article makes that exclusive across all processes.
//!
//! ```sh
//! ETCD_LOCKED_ENDPOINTS=http://127.0.0.1:2379 ORDER_SERVICE_LISTEN=127.0.0.1:8080 cargo run -p etcd-locked-examples --bin order-service
//! curl -X PUT http://127.0.0.1:8080/stock/lamp/40          # 40 pieces on the shelf, none sold
//! curl -X POST http://127.0.0.1:8080/orders/lamp/purchase
//! curl http://127.0.0.1:8080/stock/lamp                    # {"left":39,"sold":1}
//! ```
//!
//! The shop's keys are below `shop/`. `ORDER_SERVICE_UNLOCKED=1` runs the same code without the lock, and
//! `ORDER_SERVICE_PAYMENT_MS=3000` makes every payment take three seconds. `cargo xtask demo` uses both.

mod arrived;
mod error;
#[path = "../services/logs.rs"]
mod logs;
mod shop;
mod stats;

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use etcd_locked::{Config, etcd_locked};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::arrived::Arrived;
use crate::error::AppError;
use crate::shop::{Receipt, Shop, Stock};
use crate::stats::{Stats, Summary};

/// The state of every handler.
#[derive(Clone)]
struct App {
    shop: Shop,
    stats: Arc<Stats>,
}

/// Sells one piece. The lock is the attribute; nothing else in this program knows about it.
#[etcd_locked("orders/<sku>", wait = "60s")]
async fn purchase(
    State(app): State<App>,
    Path(sku): Path<String>,
    arrived: Arrived,
) -> Result<Json<Receipt>, AppError> {
    app.stats.begin(arrived);
    app.shop.sell(&sku).await.map(Json)
}

/// Sells one piece without the lock. Do not copy this one.
async fn purchase_unlocked(
    State(app): State<App>,
    Path(sku): Path<String>,
    arrived: Arrived,
) -> Result<Json<Receipt>, AppError> {
    app.stats.begin(arrived);
    app.shop.sell(&sku).await.map(Json)
}

/// Puts this many pieces on the shelf, and empties the book.
#[etcd_locked("orders/<sku>")]
async fn restock(
    State(app): State<App>,
    Path((sku, pieces)): Path<(String, u64)>,
) -> Result<(), AppError> {
    app.shop.restock(&sku, pieces).await
}

async fn stock(State(app): State<App>, Path(sku): Path<String>) -> Result<Json<Stock>, AppError> {
    app.shop.stock(&sku).await.map(Json)
}

async fn stats(State(app): State<App>) -> Json<Summary> {
    Json(app.stats.summary())
}

#[tokio::main]
async fn main() -> ExitCode {
    logs::begin(); // without a subscriber of `tracing`, a lost lock prints nothing
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("order-service: {error:?}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), Box<dyn Error>> {
    // Connects at the start rather than at the first request, so that a wrong endpoint shows at once.
    etcd_locked::init(Config::from_env()?.service("order-service")).await?;
    let endpoints = env::var("ETCD_LOCKED_ENDPOINTS")
        .map_err(|_| "set ETCD_LOCKED_ENDPOINTS, the shop's data is there too")?;
    let app = App { shop: Shop::open(&endpoints).await?, stats: Arc::default() };

    let unlocked = env::var("ORDER_SERVICE_UNLOCKED").is_ok_and(|value| value == "1");
    let purchase = if unlocked { post(purchase_unlocked) } else { post(purchase) };
    let router = Router::new()
        .route("/orders/{sku}/purchase", purchase)
        .route("/stock/{sku}", get(stock))
        .route("/stock/{sku}/{pieces}", put(restock))
        .route("/stats", get(stats))
        .with_state(app);

    let listen = env::var("ORDER_SERVICE_LISTEN").unwrap_or_else(|_| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(&listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, router).with_graceful_shutdown(asked_to_end()?).await?;

    // All requests are answered. The shutdown releases the remaining locks, so that no other process waits for a lease to expire.
    etcd_locked::shutdown(Duration::from_secs(5)).await;
    Ok(())
}

fn asked_to_end() -> std::io::Result<impl Future<Output = ()>> {
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
