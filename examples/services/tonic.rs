//! Shop service with tonic: the gRPC service of `shop.proto`.
//!
//! ```sh
//! ETCD_LOCKED_ENDPOINTS=http://127.0.0.1:2379 SHOP_LISTEN=127.0.0.1:8080 cargo run -p etcd-locked-examples --bin shop-tonic
//! ```

mod locks;
mod logs;
mod shop;
mod signals;

use std::env;
use std::process::ExitCode;

use etcd_locked::{Config, LockStatus, etcd_locked};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::proto::orders_server::{Orders, OrdersServer};
use crate::proto::{Article, Delivery, Lock, LockList, Nothing, Order, OrderId, Shelf, Wanted};
use crate::shop::{Error, Shop};
use crate::signals::{GRACE, LAST_ANSWERS, NOTICE, asked_to_end};

/// Code generated from `shop.proto`.
#[allow(unreachable_pub)]
mod proto {
    tonic::include_proto!("shop");
}

struct Service {
    shop: Shop,
}

#[tonic::async_trait]
impl Orders for Service {
    async fn place(&self, request: Request<Wanted>) -> Result<Response<Order>, Status> {
        place(self.shop.clone(), request.into_inner()).await
    }

    /// Works without `detach`: if the client disconnects, the body is dropped at its await, and the lock is free at once. A
    /// request for an order that is locked gets `ABORTED` instead of waiting.
    #[etcd_locked(locks::Order { id: request.get_ref().id }, wait = "none", proof = order)]
    #[allow(unused_variables)] // `request` is in the name alone, which `async_trait` hides from the lint
    async fn invoice(&self, request: Request<OrderId>) -> Result<Response<Order>, Status> {
        let order = self.shop.invoice(order).await?;
        Ok(Response::new(order.into()))
    }

    #[etcd_locked(locks::Shelf { sku: &request.get_ref().sku }, wait = "5s", proof = shelf)]
    async fn restock(&self, request: Request<Delivery>) -> Result<Response<Nothing>, Status> {
        let Delivery { sku, pieces } = request.into_inner();
        self.shop.restock(shelf, &sku, pieces).await?;
        Ok(Response::new(Nothing {}))
    }

    // Reads need no lock.

    async fn look(&self, request: Request<OrderId>) -> Result<Response<Order>, Status> {
        let order = self.shop.order(request.get_ref().id).await?;
        Ok(Response::new(order.into()))
    }

    async fn count(&self, request: Request<Article>) -> Result<Response<Shelf>, Status> {
        let shop::Shelf { left, sold } = self.shop.shelf(&request.get_ref().sku).await?;
        Ok(Response::new(Shelf { left, sold }))
    }

    /// Serves the readiness probe of an orchestrator.
    async fn ready(&self, _: Request<Nothing>) -> Result<Response<Nothing>, Status> {
        match etcd_locked::status().ready() {
            true => Ok(Response::new(Nothing {})),
            false => {
                Err(Status::unavailable("etcd is out of reach, or the service is about to end"))
            }
        }
    }

    /// Shows operators which locks this process holds and waits for. It shows names, so keep it from customers.
    async fn locks(&self, _: Request<Nothing>) -> Result<Response<LockList>, Status> {
        let status = etcd_locked::status();
        let list = |locks: &[LockStatus]| locks.iter().map(Lock::from).collect();
        Ok(Response::new(LockList { held: list(status.held()), waiting: list(status.waiting()) }))
    }
}

impl From<&LockStatus> for Lock {
    fn from(lock: &LockStatus) -> Self {
        Self {
            name: lock.name().text().unwrap_or_default().to_owned(),
            function: lock.function().unwrap_or_default().to_owned(),
            token: lock.token().map_or(0, |token| token.as_i64()),
        }
    }
}

/// Takes both locks or none. A server drops the handler of a client that disconnects, but here a payment is in progress. With
/// `detach` the body runs to its end under its locks, in a separate task. Such a task cannot borrow, so this is a function that
/// owns its arguments, not a method with `&self`.
///
/// The feature `tonic` converts a `LockError` into a `Status`: `ABORTED`, `UNAVAILABLE`, …
#[etcd_locked(locks::Order { id: wanted.id }, locks::Shelf { sku: &wanted.sku }, wait = "5s", detach, proof = (order, shelf))]
async fn place(shop: Shop, wanted: Wanted) -> Result<Response<Order>, Status> {
    let order = shop.place(order, shelf, &wanted.sku, wanted.pieces).await?;
    Ok(Response::new(order.into()))
}

impl From<shop::Order> for Order {
    fn from(order: shop::Order) -> Self {
        Self {
            id: order.id,
            sku: order.sku,
            pieces: order.pieces,
            state: order.state,
            invoice: order.invoice,
        }
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let said = error.to_string();
        match error {
            Error::SoldOut => Self::failed_precondition(said),
            Error::UnknownArticle | Error::UnknownOrder => Self::not_found(said),
            Error::Lock(error) => error.into(),
            Error::Store(error) => {
                eprintln!("{error}");
                Self::internal(said)
            }
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    logs::begin();
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shop-tonic: {error:?}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), Box<dyn std::error::Error>> {
    let ends = asked_to_end()?;
    // Connects at the start rather than at the first request, so that a wrong endpoint is noticed at once.
    etcd_locked::init(Config::from_env()?.service("shop-tonic")).await?;
    let shop = Shop::open().await?;

    let listen = env::var("SHOP_LISTEN").unwrap_or_else(|_| "127.0.0.1:8080".to_owned());
    let incoming = TcpIncoming::bind(listen.parse()?)?;
    println!("listening on http://{}", incoming.local_addr()?);

    let (close, closed) = oneshot::channel::<()>();
    let server = Server::builder()
        .add_service(OrdersServer::new(Service { shop }))
        .serve_with_incoming_shutdown(incoming, async {
            let _ = closed.await;
        });
    let mut server = tokio::spawn(server);
    tokio::select! {
        () = ends => {}
        failed = &mut server => failed??,
    }
    // On a signal the locks shut down: `Ready` and all calls that need a lock get `UNAVAILABLE`, also those that wait for one, so that
    // their clients try another replica. Bodies run to their end, or are dropped after the grace. All locks are released, and no lease
    // is left. Meanwhile the server listens, at least until balancers see that it is not ready: a closed port does not respond.
    tokio::join!(etcd_locked::shutdown(GRACE), sleep(NOTICE)); // also waits for detached bodies whose clients have gone
    drop(close);
    if let Ok(ended) = timeout(LAST_ANSWERS, server).await {
        ended??;
    }
    Ok(())
}
