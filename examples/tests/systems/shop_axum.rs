//! Row `axum`: the shop behind axum, over HTTP.

use std::time::Duration;

use etcd_locked_devkit::http;

use crate::etcd::Etcd;
use crate::limit::{blocking, run};
use crate::shop::http::{Http, Server};
use crate::shop::{Customer as _, Service, plays_every_scene};

type Customer = Http<Shop>;

struct Shop;

impl Server for Shop {
    const PROGRAM: &'static str = env!("CARGO_BIN_EXE_shop-axum");
}

plays_every_scene!(Customer);

/// Starts an etcd, and a service on a database of its own.
async fn service(folder: &tempfile::TempDir) -> (Etcd, Service) {
    let etcd = Etcd::start().await;
    let (database, soon) = (folder.path().join("shop.db"), Duration::from_millis(5));
    let service = Service::start::<Customer>(&etcd.endpoints(), &database, soon, soon).await;
    (etcd, service)
}

#[test]
fn metrics_are_there_for_prometheus() {
    run(async {
        let folder = tempfile::tempdir().expect("a folder");
        let (_etcd, service) = service(&folder).await;
        let mut clerk: Customer = service.customer().await;
        clerk.restock("lamp", 10).await;
        clerk.place(1, "lamp").await.expect("an order");

        let address = service.address;
        let metrics = blocking(move || http::get(address, "/metrics")).await.body;
        let granted =
            r#"etcd_locked_wait_seconds_bucket{lock="orders/<id>",outcome="granted",le="+Inf"} 1"#;
        for series in [granted, "etcd_locked_reachable 1"] {
            let found = metrics.lines().any(|line| line == series);
            assert!(found, "no {series} in {metrics}");
        }
    });
}

#[test]
fn lives_while_etcd_is_down() {
    run(async {
        let folder = tempfile::tempdir().expect("a folder");
        let (etcd, service) = service(&folder).await;
        etcd.members[0].kill().expect("etcd ends");
        service.until_ready::<Customer>(false).await;
        let address = service.address;
        let live = blocking(move || http::get(address, "/live")).await;
        assert_eq!(live.status, 200);
    });
}
