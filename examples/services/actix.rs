//! Shop service with actix-web; `axum.rs` shows the requests, which are the same.
//!
//! ```sh
//! ETCD_LOCKED_ENDPOINTS=http://127.0.0.1:2379 SHOP_LISTEN=127.0.0.1:8080 cargo run -p etcd-locked-examples --bin shop-actix
//! ```

mod locks;
mod logs;
mod shop;
mod signals;

use std::env;
use std::net::TcpListener;
use std::process::ExitCode;

use actix_web::http::StatusCode;
use actix_web::web::{Data, Json, Path};
use actix_web::{App, HttpResponse, HttpServer, ResponseError, get, post, put};
use etcd_locked::{Config, etcd_locked};
use serde::Deserialize;
use tokio::time::sleep;

use crate::shop::{Error, Order, Shelf, Shop};
use crate::signals::{GRACE, LAST_ANSWERS, NOTICE, asked_to_end};

/// Request body of a customer's order.
#[derive(Deserialize)]
struct Wanted {
    sku: String,
    pieces: u32,
}

/// Takes both locks or none. A server drops the handler of a client that disconnects, but here a payment is in progress. With
/// `detach` the body runs to its end under its locks, in a separate task. The body and its result must be `Send`:
/// `actix_web::Error` is not, `Error` is. (A proof cannot be called `order`: actix makes a type of each handler's name.)
#[put("/orders/{id}")]
#[etcd_locked(locks::Order { id: *id }, locks::Shelf { sku: &wanted.sku }, wait = "5s", detach, proof = (locked_order, locked_shelf))]
async fn place(
    shop: Data<Shop>,
    id: Path<u64>,
    wanted: Json<Wanted>,
) -> Result<Json<Order>, Error> {
    let placed = shop.place(locked_order, locked_shelf, &wanted.sku, wanted.pieces);
    placed.await.map(Json)
}

/// Works without `detach`: if the client disconnects, the body is dropped at its await, and the lock is free at once. A request
/// for an order that is locked gets 423 instead of waiting.
#[post("/orders/{id}/invoice")]
#[etcd_locked(locks::Order { id: *id }, wait = "none", proof = locked_order)]
async fn invoice(shop: Data<Shop>, id: Path<u64>) -> Result<Json<Order>, Error> {
    shop.invoice(locked_order).await.map(Json)
}

#[put("/shelves/{sku}/{pieces}")]
#[etcd_locked(locks::Shelf { sku: &on.0 }, wait = "5s", proof = locked_shelf)]
async fn restock(shop: Data<Shop>, on: Path<(String, u32)>) -> Result<HttpResponse, Error> {
    let (sku, pieces) = on.into_inner();
    shop.restock(locked_shelf, &sku, pieces).await?;
    Ok(HttpResponse::Ok().finish())
}

// Reads need no lock.

#[get("/orders/{id}")]
async fn order(shop: Data<Shop>, id: Path<u64>) -> Result<Json<Order>, Error> {
    shop.order(*id).await.map(Json)
}

#[get("/shelves/{sku}")]
async fn shelf(shop: Data<Shop>, sku: Path<String>) -> Result<Json<Shelf>, Error> {
    shop.shelf(&sku).await.map(Json)
}

/// Serves the readiness probe of an orchestrator: 503 while etcd is unreachable, and when the service is about to end.
#[get("/ready")]
async fn ready() -> HttpResponse {
    HttpResponse::new(match etcd_locked::status().ready() {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    })
}

/// Shows operators which locks this process holds and waits for. It shows names, so keep it from customers.
#[get("/locks")]
async fn locks_now() -> Json<etcd_locked::Status> {
    Json(etcd_locked::status())
}

impl ResponseError for Error {
    fn status_code(&self) -> StatusCode {
        match self {
            Self::SoldOut => StatusCode::CONFLICT,
            Self::UnknownArticle | Self::UnknownOrder => StatusCode::NOT_FOUND,
            Self::Lock(error) => error.status_code(),
            Self::Store(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn error_response(&self) -> HttpResponse {
        match self {
            // The feature `actix` makes the response: 423, 503 with `Retry-After`, …
            Self::Lock(error) => return error.error_response(),
            Self::Store(error) => eprintln!("{error}"),
            _ => {}
        }
        HttpResponse::build(self.status_code()).body(self.to_string())
    }
}

#[actix_web::main]
async fn main() -> ExitCode {
    logs::begin();
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shop-actix: {error:?}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), Box<dyn std::error::Error>> {
    let ends = asked_to_end()?;
    // Connects at the start rather than at the first request, so that a wrong endpoint is noticed at once.
    etcd_locked::init(Config::from_env()?.service("shop-actix")).await?;
    let shop = Data::new(Shop::open().await?);

    let listen = env::var("SHOP_LISTEN").unwrap_or_else(|_| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(&listen)?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = move || {
        App::new()
            .app_data(shop.clone())
            .service((ready, locks_now, place, order, invoice, restock, shelf))
    };
    let server = HttpServer::new(app)
        // Otherwise actix notices a disconnect only when it writes the response, and a body without `detach` runs on.
        .h1_allow_half_closed(false)
        .disable_signals() // they are handled below
        .shutdown_timeout(LAST_ANSWERS.as_secs())
        .listen(listener)?
        .run();

    let close = server.handle();
    let mut server = actix_web::rt::spawn(server);
    tokio::select! {
        () = ends => {}
        failed = &mut server => failed??,
    }
    // On a signal the locks shut down: `/ready` and all requests that need a lock get 503, also those that wait for one, so that their
    // clients try another replica. Bodies run to their end, or are dropped after the grace. All locks are released, and no lease is
    // left. Meanwhile the server still listens, at least until balancers have seen that it is not ready, because a closed port does not
    // respond. Its workers end last, because detached bodies run on them.
    tokio::join!(etcd_locked::shutdown(GRACE), sleep(NOTICE)); // also waits for detached bodies whose clients have gone
    close.stop(true).await;
    server.await??;
    Ok(())
}
