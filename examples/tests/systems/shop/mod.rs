//! What a service of the shop must do, in whichever framework it is built: five scenes for each of them, played by processes.

pub(crate) mod http;
mod scenes;

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tokio::time::sleep;

pub(crate) use self::scenes::{contention, disconnect, held, outage, shutdown};
use crate::limit::within;
use crate::stage::{Program, Stage};

/// A test for each scene, with this customer.
macro_rules! plays_every_scene {
    ($customer:ty) => {
        #[test]
        fn two_processes_never_sell_what_they_do_not_have() {
            $crate::shop::contention::<$customer>();
        }

        #[test]
        fn an_order_in_other_hands_is_refused() {
            $crate::shop::held::<$customer>();
        }

        #[test]
        fn a_client_that_goes_cuts_nothing_in_half_that_is_detached() {
            $crate::shop::disconnect::<$customer>();
        }

        #[test]
        fn sigterm_drains_and_leaves_nothing_behind() {
            $crate::shop::shutdown::<$customer>();
        }

        #[test]
        fn without_etcd_customers_are_told_to_come_back() {
            $crate::shop::outage::<$customer>();
        }
    };
}
pub(crate) use plays_every_scene;

/// A connection to a service. Dropped, it breaks off, whatever is under way.
pub(crate) trait Customer: Sized + Send + 'static {
    /// The service's program.
    const PROGRAM: &'static str;
    /// What it is called in this protocol that somebody else has the lock.
    const LOCKED: &'static str;
    /// That another try is worth it later.
    const UNAVAILABLE: &'static str;

    fn connect(service: SocketAddr) -> impl Future<Output = Self> + Send;

    fn restock(&mut self, sku: &str, pieces: u32) -> impl Future<Output = ()> + Send;
    fn shelf(&mut self, sku: &str) -> impl Future<Output = Shelf> + Send;
    fn order(&mut self, id: u64) -> impl Future<Output = Answer> + Send;
    fn place(&mut self, id: u64, sku: &str) -> impl Future<Output = Answer> + Send;
    fn invoice(&mut self, id: u64) -> impl Future<Output = Answer> + Send;
}

/// What a customer is told of an order.
pub(crate) type Answer = Result<Order, Refused>;

#[derive(Debug, PartialEq)]
pub(crate) struct Order {
    pub(crate) state: String,
    pub(crate) invoice: String,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Shelf {
    pub(crate) left: u32,
    pub(crate) sold: u32,
}

/// Status or code, after how many seconds to try again, and what was said.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) code: String,
    pub(crate) retry_after: Option<u64>,
    pub(crate) said: String,
}

/// A process of a service.
pub(crate) struct Service {
    pub(crate) stage: Stage,
    pub(crate) program: Program,
    address: SocketAddr,
}

impl Service {
    /// On this database; its bank and its printer take so long.
    pub(crate) async fn start<C: Customer>(
        endpoints: &str,
        database: &Path,
        bank: Duration,
        printer: Duration,
    ) -> Service {
        let stage = Stage::new(endpoints);
        let milliseconds = |duration: Duration| duration.as_millis().to_string();
        let environment = [
            ("SHOP_LISTEN", "127.0.0.1:0"),
            ("SHOP_DATABASE", database.to_str().expect("a path in UTF-8")),
            ("SHOP_BANK_MS", &milliseconds(bank)),
            ("SHOP_PRINTER_MS", &milliseconds(printer)),
        ];
        let program = stage.start_with(C::PROGRAM, &[], &environment);
        let line = stage.says("listening on http://").await.text;
        let address = line.trim_start_matches("listening on http://");
        Service {
            stage,
            program,
            address: address.parse().expect("an address"),
        }
    }

    pub(crate) async fn customer<C: Customer>(&self) -> C {
        within("a connection", C::connect(self.address)).await
    }

    /// Waits until an order stands like this.
    pub(crate) async fn until<C: Customer>(&self, id: u64, stands: impl Fn(&Order) -> bool) {
        let mut customer: C = self.customer().await;
        let look = async {
            while !customer.order(id).await.is_ok_and(|order| stands(&order)) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        within("what the order was waited for", look).await;
    }
}
