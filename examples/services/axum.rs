//! Shop service with axum. Any number of its processes may share one database:
//!
//! ```sh
//! ETCD_LOCKED_ENDPOINTS=http://127.0.0.1:2379 SHOP_LISTEN=127.0.0.1:8080 cargo run -p etcd-locked-examples --bin shop-axum
//! curl -X PUT http://127.0.0.1:8080/shelves/lamp/40
//! curl -X PUT http://127.0.0.1:8080/orders/1 -H content-type:application/json -d '{"sku": "lamp", "pieces": 2}'
//! curl -X POST http://127.0.0.1:8080/orders/1/invoice
//! curl http://127.0.0.1:8080/shelves/lamp                    # {"left":38,"sold":2}
//! curl http://127.0.0.1:8080/locks                           # {"ready":true,"reachable":true,"draining":false,"leases":[…],…
//! curl http://127.0.0.1:8080/metrics                         # for Prometheus; dashboard and alerts are in examples/ops
//! ```

mod locks;
mod logs;
mod shop;
mod signals;

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use etcd_locked::{BUCKETS, Config, etcd_locked};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::{interval, sleep, timeout};

use crate::shop::{Error, Order, Shelf, Shop};
use crate::signals::{GRACE, LAST_ANSWERS, NOTICE, asked_to_end};

/// Request body of a customer's order.
#[derive(Deserialize)]
struct Wanted {
    sku: String,
    pieces: u32,
}

/// Takes both locks or none. A server drops the handler of a client that disconnects, but here a payment is in progress. With
/// `detach` the body runs to its end under its locks, in a separate task.
#[etcd_locked(locks::Order { id }, locks::Shelf { sku: &wanted.sku }, wait = "5s", detach, proof = (order, shelf))]
async fn place(
    State(shop): State<Shop>,
    Path(id): Path<u64>,
    Json(wanted): Json<Wanted>,
) -> Result<Json<Order>, Error> {
    shop.place(order, shelf, &wanted.sku, wanted.pieces).await.map(Json)
}

/// Works without `detach`: if the client disconnects, the body is dropped at its await, and the lock is free at once. A request
/// for an order that is locked gets 423 instead of waiting.
#[etcd_locked(locks::Order { id }, wait = "none", proof = order)]
async fn invoice(State(shop): State<Shop>, Path(id): Path<u64>) -> Result<Json<Order>, Error> {
    shop.invoice(order).await.map(Json)
}

#[etcd_locked(locks::Shelf { sku: &sku }, wait = "5s", proof = shelf)]
async fn restock(
    State(shop): State<Shop>,
    Path((sku, pieces)): Path<(String, u32)>,
) -> Result<(), Error> {
    shop.restock(shelf, &sku, pieces).await
}

// Reads need no lock.

async fn order(State(shop): State<Shop>, Path(id): Path<u64>) -> Result<Json<Order>, Error> {
    shop.order(id).await.map(Json)
}

async fn shelf(State(shop): State<Shop>, Path(sku): Path<String>) -> Result<Json<Shelf>, Error> {
    shop.shelf(&sku).await.map(Json)
}

/// Serves the readiness probe of an orchestrator: 503 while etcd is unreachable, and when the service is about to end.
async fn ready() -> StatusCode {
    match etcd_locked::status().ready() {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Serves the liveness probe. It must not depend on etcd: a restart does not end an outage, and gives up the held locks.
async fn live() {}

/// Shows operators which locks this process holds and waits for. It shows names, so keep it from customers.
async fn locks_now() -> Json<etcd_locked::Status> {
    Json(etcd_locked::status())
}

/// Sorts recorded values into the buckets every few seconds, because without scrapes they would pile up.
async fn upkeep(metrics: PrometheusHandle) {
    let mut every = interval(Duration::from_secs(5));
    loop {
        every.tick().await;
        metrics.run_upkeep();
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let status = match self {
            Self::SoldOut => StatusCode::CONFLICT,
            Self::UnknownArticle | Self::UnknownOrder => StatusCode::NOT_FOUND,
            // The feature `axum` makes the response: 423, 503 with `Retry-After`, …
            Self::Lock(error) => return error.into_response(),
            Self::Store(ref error) => {
                eprintln!("{error}");
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        (status, self.to_string()).into_response()
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    logs::begin();
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shop-axum: {error:?}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), Box<dyn std::error::Error>> {
    let ends = asked_to_end()?;
    // Before the first lock, so that everything is recorded.
    let metrics = PrometheusBuilder::new().set_buckets(&BUCKETS)?.install_recorder()?;
    tokio::spawn(upkeep(metrics.clone()));
    // Connects at the start rather than at the first request, so that a wrong endpoint is noticed at once.
    etcd_locked::init(Config::from_env()?.service("shop-axum")).await?;
    let router = Router::new()
        .route("/live", get(live))
        .route("/ready", get(ready))
        .route("/locks", get(locks_now))
        .route("/metrics", get(async move || metrics.render()))
        .route("/orders/{id}", put(place).get(order))
        .route("/orders/{id}/invoice", post(invoice))
        .route("/shelves/{sku}", get(shelf))
        .route("/shelves/{sku}/{pieces}", put(restock))
        .with_state(Shop::open().await?);

    let listen = env::var("SHOP_LISTEN").unwrap_or_else(|_| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(&listen).await?;
    println!("listening on http://{}", listener.local_addr()?);

    let (close, closed) = oneshot::channel::<()>();
    let server = axum::serve(listener, router).with_graceful_shutdown(async {
        let _ = closed.await;
    });
    let mut server = tokio::spawn(server.into_future());
    tokio::select! {
        () = ends => {}
        failed = &mut server => failed??,
    }
    // On a signal the locks shut down: `/ready` and all requests that need a lock get 503, also those that wait for one, so that their
    // clients try another replica. Bodies run to their end, or are dropped after the grace. All locks are released, and no lease is left.
    // Meanwhile the server listens, at least until balancers have seen that it is not ready, because a closed port does not respond.
    tokio::join!(etcd_locked::shutdown(GRACE), sleep(NOTICE)); // also waits for detached bodies whose clients have gone
    drop(close);
    if let Ok(ended) = timeout(LAST_ANSWERS, server).await {
        ended??;
    }
    Ok(())
}
