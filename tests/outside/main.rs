//! Crate outside the workspace with the first two examples of the documentation.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use etcd_locked::{LockError, etcd_locked};

#[derive(Debug)]
struct AppError(LockError);

impl From<LockError> for AppError {
    fn from(error: LockError) -> Self {
        Self(error)
    }
}

impl IntoResponse for AppError {
    fn into_response(self) -> Response {
        self.0.to_string().into_response()
    }
}

struct Receipt(u64);

#[etcd_locked("orders/<id>")]
async fn ship(id: u64) -> Result<Receipt, AppError> {
    println!("shipping {id}");
    Ok(Receipt(id))
}

#[derive(Clone)]
struct Db;

type Order = String;

#[etcd_locked("orders/<id>", wait = "5s", ttl = "30s")]
async fn handler(State(db): State<Db>, Path(id): Path<String>) -> Result<Json<Order>, AppError> {
    let Db = db;
    Ok(Json(id))
}

#[tokio::main]
async fn main() -> Result<(), AppError> {
    // The function must be an axum handler, and not merely compile.
    let _: Router = Router::new().route("/{id}", get(handler)).with_state(Db);
    let Receipt(shipped) = ship(42).await?;
    let Json(order) = handler(State(Db), Path(shipped.to_string())).await?;
    assert_eq!(order, "42");
    etcd_locked::shutdown(Duration::from_secs(5)).await;
    Ok(())
}
