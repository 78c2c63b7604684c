//! Row `axum`: the shop behind axum, over HTTP.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use etcd_locked_devkit::http;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::limit::{blocking, run};
use crate::shop::http::{Http, Server};
use crate::shop::{Customer as _, Town, paid, plays_every_scene};

/// Time that the bank and the printer take in most tests.
const SOON: Duration = Duration::from_millis(5);

type Customer = Http<Shop>;

struct Shop;

impl Server for Shop {
    const PROGRAM: &'static str = env!("CARGO_BIN_EXE_shop-axum");
}

plays_every_scene!(Customer);

#[test]
fn metrics_are_there_for_prometheus() {
    run(async {
        let town = Town::found().await;
        let service = town.service::<Customer>(SOON, SOON).await;
        let mut clerk: Customer = service.customer().await;
        clerk.restock("lamp", 10).await;
        clerk.place(1, "lamp").await.expect("an order");

        let address = service.address;
        let metrics = blocking(move || http::get(address, "/metrics")).await.body;
        let granted =
            r#"etcd_locked_wait_seconds_bucket{lock="orders/<id>",outcome="granted",le="+Inf"} 1"#;
        for series in [granted, "etcd_locked_connections_total{", "etcd_locked_reachable 1"] {
            let found = metrics.lines().any(|line| line.starts_with(series));
            assert!(found, "no {series} in {metrics}");
        }
    });
}

/// Restarts each of three replicas, while customers use those that report they are ready.
#[test]
fn rolling_restart_loses_no_order() {
    const REPLICAS: usize = 3;
    const CUSTOMERS: usize = 6;
    run(async {
        let town = Town::found().await;
        let body = Duration::from_millis(20);
        let mut replicas = VecDeque::new();
        for _ in 0..REPLICAS {
            replicas.push_back(town.service::<Customer>(body, SOON).await);
        }
        let mut clerk: Customer = replicas[0].customer().await;
        clerk.restock("lamp", 1_000_000).await;
        let addresses = replicas.iter().map(|it| it.address).collect::<Vec<_>>();
        let (balancer, _) = watch::channel(addresses);

        let mut customers = JoinSet::new();
        for customer in 0..CUSTOMERS {
            customers.spawn(buy_until_closed(customer as u64, balancer.subscribe()));
        }
        for _ in 0..REPLICAS {
            let mut old = replicas.pop_front().expect("a replica");
            old.program.terminate();
            old.until_ready::<Customer>(false).await;
            balancer.send_modify(|ready| ready.retain(|it| *it != old.address));
            old.stage.ends_well(&mut old.program).await;
            let new = town.service::<Customer>(body, SOON).await;
            new.until_ready::<Customer>(true).await;
            balancer.send_modify(|ready| ready.push(new.address));
            replicas.push_back(new);
        }
        drop(balancer);
        let bought: u32 = customers.join_all().await.into_iter().sum();
        let mut clerk: Customer = replicas[0].customer().await;
        assert_eq!(clerk.shelf("lamp").await.sold, bought);
        for mut replica in replicas {
            replica.program.terminate();
            replica.stage.ends_well(&mut replica.program).await;
        }
        assert!(town.etcd.is_empty().await, "a key or a lease is left");
    });
}

/// Places one order after another, each with a replica that is ready, until the balancer is gone. Returns how many were paid.
async fn buy_until_closed(customer: u64, ready: watch::Receiver<Vec<SocketAddr>>) -> u32 {
    let (mut bought, mut asked) = (0, customer as usize);
    while ready.has_changed().is_ok() {
        let order = customer * 1_000_000 + u64::from(bought);
        loop {
            asked += 1;
            let replica = {
                let ready = ready.borrow();
                ready[asked % ready.len()]
            };
            match Customer::connect(replica).await.place(order, "lamp").await {
                Ok(order) => break assert!(paid(&order), "{order:?}"),
                // It waited too long, or the replica is about to end, so the customer tries another one.
                Err(refused) => assert!(
                    [Customer::LOCKED, Customer::UNAVAILABLE].contains(&&*refused.code),
                    "{refused:?}"
                ),
            }
        }
        bought += 1;
    }
    bought
}
