//! Tests of the shop's services: five scenes for each framework, played by processes.

pub(crate) mod http;
mod scenes;

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tokio::time::sleep;

pub(crate) use self::scenes::{Town, contention, disconnect, held, outage, paid, shutdown};
use crate::limit::within;
use crate::stage::{Program, Stage};

/// Defines a test for each scene, with this type of customer.
macro_rules! plays_every_scene {
    ($customer:ty) => {
        #[test]
        fn two_processes_never_sell_what_they_do_not_have() {
            $crate::shop::contention::<$customer>();
        }

        #[test]
        fn a_locked_order_is_refused() {
            $crate::shop::held::<$customer>();
        }

        #[test]
        fn a_detached_body_outlives_its_client() {
            $crate::shop::disconnect::<$customer>();
        }

        #[test]
        fn sigterm_drains_and_leaves_nothing_behind() {
            $crate::shop::shutdown::<$customer>();
        }

        #[test]
        fn without_etcd_requests_are_refused_as_retryable() {
            $crate::shop::outage::<$customer>();
        }
    };
}
pub(crate) use plays_every_scene;

/// Customer's connection to a service; dropping it closes it at once.
pub(crate) trait Customer: Sized + Send + 'static {
    /// Program of the service.
    const PROGRAM: &'static str;
    /// Protocol's code for a lock that is held.
    const LOCKED: &'static str;
    /// Protocol's code for a refusal that may be retried later.
    const UNAVAILABLE: &'static str;

    fn connect(service: SocketAddr) -> impl Future<Output = Self> + Send;

    fn restock(&mut self, sku: &str, pieces: u32) -> impl Future<Output = ()> + Send;
    fn shelf(&mut self, sku: &str) -> impl Future<Output = Shelf> + Send;
    fn order(&mut self, id: u64) -> impl Future<Output = Answer> + Send;
    fn place(&mut self, id: u64, sku: &str) -> impl Future<Output = Answer> + Send;
    fn invoice(&mut self, id: u64) -> impl Future<Output = Answer> + Send;

    /// Sends the request of a readiness probe.
    fn ready(&mut self) -> impl Future<Output = bool> + Send;
    /// Requests the names that the service holds.
    fn holds(&mut self) -> impl Future<Output = Vec<String>> + Send;
}

/// Response to a customer about an order.
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

/// Refusal of a request.
#[derive(Debug)]
pub(crate) struct Refused {
    /// Status or code of the protocol.
    pub(crate) code: String,
    /// Seconds after which to try again.
    pub(crate) retry_after: Option<u64>,
    /// Text for the customer.
    pub(crate) said: String,
}

/// Process of a service.
pub(crate) struct Service {
    pub(crate) stage: Stage,
    pub(crate) program: Program,
    pub(crate) address: SocketAddr,
}

impl Service {
    /// Starts a service on this database, whose bank and printer take this long.
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
        Service { stage, program, address: address.parse().expect("an address") }
    }

    pub(crate) async fn customer<C: Customer>(&self) -> C {
        within("a connection", C::connect(self.address)).await
    }

    /// Awaits that the service reports that it is ready, or that it is not.
    pub(crate) async fn until_ready<C: Customer>(&self, wanted: bool) {
        let asks = async {
            loop {
                // A new connection, because some servers close one that is idle for five seconds.
                let mut probe: C = self.customer().await;
                if probe.ready().await == wanted {
                    break;
                }
                sleep(Duration::from_millis(50)).await;
            }
        };
        within("the readiness", asks).await;
    }

    /// Awaits that an order satisfies `wanted`.
    pub(crate) async fn until<C: Customer>(&self, id: u64, wanted: impl Fn(&Order) -> bool) {
        let mut customer: C = self.customer().await;
        let reads = async {
            while !customer.order(id).await.is_ok_and(|order| wanted(&order)) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        within("the wanted state of the order", reads).await;
    }
}
