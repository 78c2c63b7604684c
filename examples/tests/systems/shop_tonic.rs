//! Row `tonic`: the shop behind tonic, over gRPC.

use std::net::SocketAddr;

use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};

use crate::shop::{Answer, Order, Refused, Shelf, plays_every_scene};

#[allow(unreachable_pub)]
mod proto {
    tonic::include_proto!("shop");
}
use proto::orders_client::OrdersClient;

struct Customer(OrdersClient<Channel>);

fn order(order: Result<Response<proto::Order>, Status>) -> Answer {
    let proto::Order { state, invoice, .. } = order.map_err(refused)?.into_inner();
    Ok(Order { state, invoice })
}

fn refused(status: Status) -> Refused {
    let pushback = status.metadata().get("grpc-retry-pushback-ms");
    let milliseconds = |text: &str| text.parse::<u64>().expect("milliseconds");
    Refused {
        code: format!("{:?}", status.code()),
        retry_after: pushback.map(|it| milliseconds(it.to_str().expect("text")) / 1000),
        said: status.message().to_owned(),
    }
}

impl crate::shop::Customer for Customer {
    const PROGRAM: &'static str = env!("CARGO_BIN_EXE_shop-tonic");
    const LOCKED: &'static str = "Aborted";
    const UNAVAILABLE: &'static str = "Unavailable";

    async fn connect(service: SocketAddr) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{service}")).expect("an address");
        Customer(OrdersClient::new(endpoint.connect().await.expect("a service")))
    }

    async fn restock(&mut self, sku: &str, pieces: u32) {
        let sku = sku.to_owned();
        let restocked = self.0.restock(proto::Delivery { sku, pieces }).await;
        restocked.expect("a shelf");
    }

    async fn shelf(&mut self, sku: &str) -> Shelf {
        let sku = sku.to_owned();
        let shelf = self.0.count(proto::Article { sku }).await;
        let proto::Shelf { left, sold } = shelf.expect("a shelf").into_inner();
        Shelf { left, sold }
    }

    async fn order(&mut self, id: u64) -> Answer {
        order(self.0.look(proto::OrderId { id }).await)
    }

    async fn place(&mut self, id: u64, sku: &str) -> Answer {
        let (sku, pieces) = (sku.to_owned(), 1);
        order(self.0.place(proto::Wanted { id, sku, pieces }).await)
    }

    async fn invoice(&mut self, id: u64) -> Answer {
        order(self.0.invoice(proto::OrderId { id }).await)
    }

    async fn ready(&mut self) -> bool {
        match self.0.ready(proto::Nothing {}).await {
            Ok(_) => true,
            Err(status) => {
                assert_eq!(refused(status).code, Self::UNAVAILABLE);
                false
            }
        }
    }

    async fn holds(&mut self) -> Vec<String> {
        let locks = self.0.locks(proto::Nothing {}).await.expect("a list");
        let held = locks.into_inner().held.into_iter();
        held.map(|lock| lock.name).collect()
    }
}

plays_every_scene!(Customer);
