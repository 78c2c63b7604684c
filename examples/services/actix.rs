//! The shop behind actix-web; see `axum.rs` beside it for how to talk to it.
//!
//! ```sh
//! ETCD_LOCKED_ENDPOINTS=http://127.0.0.1:2379 SHOP_LISTEN=127.0.0.1:8080 cargo run -p etcd-locked-examples --bin shop-actix
//! ```

mod locks;
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

use crate::shop::{Error, Order, Shelf, Shop};
use crate::signals::{GRACE, LAST_ANSWERS, asked_to_end};

/// What a customer sends.
#[derive(Deserialize)]
struct Wanted {
    sku: String,
    pieces: u32,
}

/// Both locks or none. `detach`: a server drops the handler of a client that has gone, but money is under way here, so the body
/// has a task of its own and comes to its end, under its locks, whoever waits for the answer. What goes into a task must be
/// `Send`: `actix_web::Error` is not, `Error` is.
#[put("/orders/{id}")]
#[etcd_locked(locks::Order { id: *id }, locks::Shelf { sku: &wanted.sku }, wait = "5s", detach)]
async fn place(
    shop: Data<Shop>,
    id: Path<u64>,
    wanted: Json<Wanted>,
) -> Result<Json<Order>, Error> {
    shop.place(*id, &wanted.sku, wanted.pieces).await.map(Json)
}

/// Without `detach`: when the client has gone, the body is dropped where it awaits, and the lock is free at once. Who finds the
/// order in other hands is told so, instead of waiting: 423.
#[post("/orders/{id}/invoice")]
#[etcd_locked(locks::Order { id: *id }, wait = "none")]
async fn invoice(shop: Data<Shop>, id: Path<u64>) -> Result<Json<Order>, Error> {
    shop.invoice(*id).await.map(Json)
}

#[put("/shelves/{sku}/{pieces}")]
#[etcd_locked(locks::Shelf { sku: &on.0 }, wait = "5s")]
async fn restock(shop: Data<Shop>, on: Path<(String, u32)>) -> Result<HttpResponse, Error> {
    let (sku, pieces) = on.into_inner();
    shop.restock(&sku, pieces).await?;
    Ok(HttpResponse::Ok().finish())
}

// What only looks needs no lock.

#[get("/orders/{id}")]
async fn order(shop: Data<Shop>, id: Path<u64>) -> Result<Json<Order>, Error> {
    shop.order(*id).await.map(Json)
}

#[get("/shelves/{sku}")]
async fn shelf(shop: Data<Shop>, sku: Path<String>) -> Result<Json<Shelf>, Error> {
    shop.shelf(&sku).await.map(Json)
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
            // Feature `actix`: 423, 503 with `Retry-After`, … as the lock has it.
            Self::Lock(error) => return error.error_response(),
            Self::Store(error) => eprintln!("{error}"),
            _ => {}
        }
        HttpResponse::build(self.status_code()).body(self.to_string())
    }
}

#[actix_web::main]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shop-actix: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), Box<dyn std::error::Error>> {
    let ends = asked_to_end()?;
    // Here and not at the first request: a wrong endpoint should show when the service starts.
    etcd_locked::init(Config::from_env()?.service("shop-actix")).await?;
    let shop = Data::new(Shop::open().await?);

    let listen = env::var("SHOP_LISTEN").unwrap_or_else(|_| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(&listen)?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = move || {
        App::new()
            .app_data(shop.clone())
            .service((place, order, invoice, restock, shelf))
    };
    let server = HttpServer::new(app)
        // Else a client that has gone is noticed when its answer is written, and a body without `detach` runs on for nobody.
        .h1_allow_half_closed(false)
        .disable_signals() // what they mean is said below
        .shutdown_timeout(LAST_ANSWERS.as_secs())
        .listen(listener)?
        .run();

    // Asked to end, the server takes no more clients, and the locks come first: who waits for one is refused and asks another
    // replica, bodies come to their end or are dropped when the grace is over, all locks are given back. Only then may the
    // workers end: they are what detached bodies run on, also those whose clients have gone.
    let handle = server.handle();
    actix_web::rt::spawn(async move {
        ends.await;
        handle.pause().await;
        etcd_locked::shutdown(GRACE).await;
        handle.stop(true).await;
    });
    Ok(server.await?)
}
