//! The shop behind tonic: gRPC, as `shop.proto` says.
//!
//! ```sh
//! ETCD_LOCKED_ENDPOINTS=http://127.0.0.1:2379 SHOP_LISTEN=127.0.0.1:8080 cargo run -p etcd-locked-examples --bin shop-tonic
//! ```

mod locks;
mod shop;
mod signals;

use std::env;
use std::process::ExitCode;

use etcd_locked::{Config, etcd_locked};
use tokio::time::timeout;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::proto::orders_server::{Orders, OrdersServer};
use crate::proto::{Article, Delivery, Nothing, Order, OrderId, Shelf, Wanted};
use crate::shop::{Error, Shop};
use crate::signals::{GRACE, LAST_ANSWERS, asked_to_end};

/// What `shop.proto` says, in Rust.
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

    /// Without `detach`: when the client has gone, the body is dropped where it awaits, and the lock is free at once. Who finds
    /// the order in other hands is told so, instead of waiting: `ABORTED`.
    #[etcd_locked(locks::Order { id: request.get_ref().id }, wait = "none")]
    async fn invoice(&self, request: Request<OrderId>) -> Result<Response<Order>, Status> {
        let order = self.shop.invoice(request.get_ref().id).await?;
        Ok(Response::new(order.into()))
    }

    #[etcd_locked(locks::Shelf { sku: &request.get_ref().sku }, wait = "5s")]
    async fn restock(&self, request: Request<Delivery>) -> Result<Response<Nothing>, Status> {
        let Delivery { sku, pieces } = request.into_inner();
        self.shop.restock(&sku, pieces).await?;
        Ok(Response::new(Nothing {}))
    }

    // What only looks needs no lock.

    async fn look(&self, request: Request<OrderId>) -> Result<Response<Order>, Status> {
        let order = self.shop.order(request.get_ref().id).await?;
        Ok(Response::new(order.into()))
    }

    async fn count(&self, request: Request<Article>) -> Result<Response<Shelf>, Status> {
        let shop::Shelf { left, sold } = self.shop.shelf(&request.get_ref().sku).await?;
        Ok(Response::new(Shelf { left, sold }))
    }
}

/// Both locks or none. `detach`: a server drops the handler of a client that has gone, but money is under way here, so the body
/// has a task of its own and comes to its end, under its locks, whoever waits for the answer. Such a task cannot borrow, and a
/// method of a service has `&self`: hence this function, which has all it needs.
///
/// `Status` is `From<LockError>` by the feature `tonic`: `ABORTED`, `UNAVAILABLE`, … as the lock has it.
#[etcd_locked(locks::Order { id: wanted.id }, locks::Shelf { sku: &wanted.sku }, wait = "5s", detach)]
async fn place(shop: Shop, wanted: Wanted) -> Result<Response<Order>, Status> {
    let order = shop.place(wanted.id, &wanted.sku, wanted.pieces).await?;
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
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shop-tonic: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), Box<dyn std::error::Error>> {
    let (ends, shut_down) = (asked_to_end()?, asked_to_end()?);
    // Here and not at the first request: a wrong endpoint should show when the service starts.
    etcd_locked::init(Config::from_env()?.service("shop-tonic")).await?;
    let shop = Shop::open().await?;

    let listen = env::var("SHOP_LISTEN").unwrap_or_else(|_| "127.0.0.1:8080".to_owned());
    let incoming = TcpIncoming::bind(listen.parse()?)?;
    println!("listening on http://{}", incoming.local_addr()?);

    // Asked to end, the server takes no more calls and answers those it has. Beside it, and not after it, the locks: who waits
    // for one is refused now and asks another replica, bodies come to their end or are dropped when the grace is over, so that
    // the server comes to its end as well; then all locks are given back and no lease is left to run out.
    let server = Server::builder()
        .add_service(OrdersServer::new(Service { shop }))
        .serve_with_incoming_shutdown(incoming, ends);
    let mut server = tokio::spawn(server);
    let ended = tokio::select! {
        () = shut_down => None,
        ended = &mut server => Some(ended), // at once, as nobody was being served; or it has failed
    };
    etcd_locked::shutdown(GRACE).await; // waits for detached bodies too, whose clients have gone
    let ended = match ended {
        None => timeout(LAST_ANSWERS, server).await.ok(),
        ended => ended,
    };
    if let Some(ended) = ended {
        ended??;
    }
    Ok(())
}
