//! Scenes of the shop's tests: contention, locked orders, disconnects, shutdown, an outage of etcd.

#![allow(clippy::unwrap_used)] // a test

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Answer, Customer, Order, Service, Shelf};
use crate::etcd::Etcd;
use crate::limit::{run, within};

const AT_ONCE: Duration = Duration::from_millis(5);
const NEVER: Duration = Duration::from_secs(600);

/// etcd, and a database for all services on it.
pub(crate) struct Town {
    pub(crate) etcd: Etcd,
    folder: TempDir,
}

impl Town {
    pub(crate) async fn found() -> Town {
        Town { etcd: Etcd::start().await, folder: tempfile::tempdir().expect("a folder") }
    }

    fn database(&self) -> PathBuf {
        self.folder.path().join("shop.db")
    }

    pub(crate) async fn service<C: Customer>(&self, bank: Duration, printer: Duration) -> Service {
        Service::start::<C>(&self.etcd.endpoints(), &self.database(), bank, printer).await
    }

    async fn holders(&self, name: &str) -> usize {
        self.etcd.below(&format!("locks/{name}/")).await.len()
    }
}

pub(crate) fn paid(order: &Order) -> bool {
    order.state == "paid"
}

fn paying(order: &Order) -> bool {
    order.state == "paying"
}

/// Plays two processes and many customers, who get all pieces, and not one more.
pub(crate) fn contention<C: Customer>() {
    const PIECES: u32 = 10;
    const CUSTOMERS: u64 = 24;
    run(async {
        let town = Town::found().await;
        let bank = Duration::from_millis(30);
        let services =
            [town.service::<C>(bank, AT_ONCE).await, town.service::<C>(bank, AT_ONCE).await];
        let mut clerk: C = services[0].customer().await;
        clerk.restock("lamp", PIECES).await;

        let mut crowd = JoinSet::new();
        for id in 1..=CUSTOMERS {
            let mut customer: C = services[id as usize % 2].customer().await;
            // All of them share one shelf, and on a busy machine some wait too long.
            crowd.spawn(async move {
                loop {
                    match customer.place(id, "lamp").await {
                        Err(refused) if refused.code == C::LOCKED => {}
                        answer => return answer,
                    }
                }
            });
        }
        let answers: Vec<Answer> = crowd.join_all().await;
        let sold = answers.iter().flatten().filter(|order| paid(order)).count();
        let refused = answers.iter().filter_map(|answer| answer.as_ref().err());
        let sold_out = refused.filter(|refused| refused.said.contains("sold out")).count();
        let shelf = clerk.shelf("lamp").await;
        let answered = (sold as u32, (sold + sold_out) as u64);
        assert_eq!(answered, (PIECES, CUSTOMERS), "{shelf:?} {answers:?}");
        let expected = Shelf { left: 0, sold: PIECES };
        assert_eq!(shelf, expected);
    });
}

/// Plays requests for locked orders, which are refused at once or after the wait.
pub(crate) fn held<C: Customer>() {
    run(async {
        let town = Town::found().await;
        let service = town.service::<C>(Duration::from_secs(10), AT_ONCE).await;
        let mut clerk: C = service.customer().await;
        clerk.restock("lamp", 10).await;
        let mut first: C = service.customer().await;
        let first = tokio::spawn(async move { first.place(1, "lamp").await });
        service.until::<C>(1, paying).await;

        let asked = Instant::now();
        let mut second: C = service.customer().await;
        let (no, late) = tokio::join!(clerk.invoice(1), second.place(2, "lamp"));
        let (no, late) = (no.unwrap_err(), late.unwrap_err());
        assert!(asked.elapsed() >= Duration::from_secs(5), "{late:?}");
        for (refused, begins) in [
            (&no, "LOCK_HELD: lock `orders/<id>` "),
            (&late, "LOCK_TIMEOUT: lock `shelves/<sku>` "),
        ] {
            assert_eq!(refused.code, C::LOCKED, "{refused:?}");
            assert_eq!(refused.retry_after, None, "{refused:?}");
            // The response names neither the holder's host and process nor the order's number.
            assert!(refused.said.starts_with(begins), "{refused:?}");
            assert!(!refused.said.contains("process"), "{refused:?}");
        }
        second.order(2).await.expect_err("it was never begun");
        assert!(paid(&within("the first", first).await.unwrap().unwrap()));
        // The order is free now. A new connection, because some servers close one that is idle for five seconds.
        let mut clerk: C = service.customer().await;
        assert_eq!(clerk.invoice(1).await.unwrap().invoice, "printed");
    });
}

/// Plays clients that disconnect in the middle. With `detach` the body runs to its end under its lock; without it the body is
/// dropped and the lock is free at once.
pub(crate) fn disconnect<C: Customer>() {
    run(async {
        let town = Town::found().await;
        let service = town.service::<C>(Duration::from_secs(6), NEVER).await;
        let mut clerk: C = service.customer().await;
        clerk.restock("lamp", 10).await;

        let mut gone: C = service.customer().await;
        let gone = tokio::spawn(async move { gone.place(1, "lamp").await });
        service.until::<C>(1, paying).await;
        assert_eq!(clerk.holds().await, ["orders/1", "shelves/lamp"]);
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        let whole = async {
            loop {
                let locked = (town.holders("orders/1").await, town.holders("shelves/lamp").await);
                if paid(&clerk.order(1).await.unwrap()) {
                    break;
                }
                assert_eq!(locked, (1, 1), "the body has lost its locks with its client");
                sleep(Duration::from_millis(10)).await; // not in a busy loop
            }
        };
        within("the end of a body whose client has gone", whole).await;
        assert_eq!(clerk.shelf("lamp").await, Shelf { left: 9, sold: 1 });
        town.etcd.until_below("locks/", 0).await;

        let mut gone: C = service.customer().await;
        // The service gets the response to its release a moment after the test sees the release in etcd.
        let gone = tokio::spawn(async move {
            while gone.invoice(1).await.is_err_and(|it| it.code == C::LOCKED) {
                sleep(Duration::from_millis(10)).await; // not in a busy loop
            }
        });
        let printing = |order: &Order| order.invoice == "printing";
        service.until::<C>(1, printing).await;
        assert_eq!(town.holders("orders/1").await, 1);
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        // The printer would take ten minutes.
        town.etcd.until_below("locks/", 0).await;
        assert!(printing(&clerk.order(1).await.unwrap()), "cut");
        let again = within("the lock, free", clerk.place(1, "lamp")).await;
        assert!(paid(&again.unwrap()));
    });
}

/// Plays SIGTERM to both replicas under load. Waiting and new requests are refused as retryable, bodies run to their end with and
/// without a client, and no key or lease is left.
pub(crate) fn shutdown<C: Customer>() {
    run(async {
        let town = Town::found().await;
        let bank = Duration::from_secs(7);
        let mut one = town.service::<C>(bank, AT_ONCE).await;
        let mut other = town.service::<C>(bank, AT_ONCE).await;
        let mut clerk: C = one.customer().await;
        clerk.restock("lamp", 10).await;
        clerk.restock("sofa", 10).await;
        drop(clerk);

        let mut stays: C = one.customer().await;
        let stays = tokio::spawn(async move { stays.place(1, "lamp").await });
        let mut gone: C = one.customer().await;
        let gone = tokio::spawn(async move { gone.place(2, "sofa").await });
        one.until::<C>(1, paying).await;
        one.until::<C>(2, paying).await;
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        let mut waits: C = other.customer().await;
        let waits = tokio::spawn(async move { waits.place(3, "lamp").await });
        town.etcd.until_below("locks/shelves/lamp/", 2).await;

        one.program.terminate();
        other.program.terminate();
        let refused = within("the refusal", waits).await.unwrap().unwrap_err();
        assert!(!stays.is_finished(), "a waiting request is not refused at once");
        assert_eq!(refused.code, C::UNAVAILABLE, "{refused:?}");
        assert_eq!(refused.retry_after, Some(1), "{refused:?}");
        assert!(refused.said.starts_with("LOCK_SHUTTING_DOWN"), "{refused:?}");
        // It still listens, so that balancers see that it is not ready, and refuses new requests.
        one.until_ready::<C>(false).await;
        let mut late: C = one.customer().await;
        let refused = late.place(4, "sofa").await.unwrap_err();
        assert_eq!(refused.code, C::UNAVAILABLE, "{refused:?}");
        assert_eq!(refused.retry_after, Some(1), "{refused:?}");
        let answer = within("the answer", stays).await.unwrap();
        assert!(paid(&answer.unwrap()));
        one.stage.ends_well(&mut one.program).await;
        other.stage.ends_well(&mut other.program).await;
        assert!(town.etcd.is_empty().await, "a key or a lease is left");

        let next = town.service::<C>(AT_ONCE, AT_ONCE).await;
        let mut clerk: C = next.customer().await;
        assert!(paid(&clerk.order(2).await.unwrap()), "cut by the shutdown");
        clerk.order(3).await.expect_err("it was never begun");
        assert!(paid(&clerk.place(3, "lamp").await.unwrap()), "elsewhere");
    });
}

/// Plays an outage of etcd. Requests that need a lock are refused as retryable, reads still work, and all work after etcd is back.
pub(crate) fn outage<C: Customer>() {
    run(async {
        let town = Town::found().await;
        let mut service = town.service::<C>(AT_ONCE, AT_ONCE).await;
        let mut clerk: C = service.customer().await;
        clerk.restock("lamp", 10).await;
        assert!(paid(&clerk.place(1, "lamp").await.unwrap()));
        assert!(clerk.ready().await);

        town.etcd.members[0].kill().unwrap();
        let refused = clerk.place(2, "lamp").await.unwrap_err();
        assert_eq!(refused.code, C::UNAVAILABLE, "{refused:?}");
        assert_eq!(refused.retry_after, Some(5), "{refused:?}");
        // The response does not say where etcd is.
        let said = "LOCK_BACKEND: the lock service cannot be reached";
        assert_eq!(refused.said, said);
        assert_eq!(clerk.shelf("lamp").await, Shelf { left: 9, sold: 1 });

        service.until_ready::<C>(false).await;

        town.etcd.restart().await;
        service.until_ready::<C>(true).await;
        // New connections, because the server may have closed an idle one.
        let back = async {
            loop {
                let mut clerk: C = service.customer().await;
                if clerk.place(2, "lamp").await.is_ok() {
                    break;
                }
                sleep(Duration::from_millis(50)).await;
            }
        };
        within("an order, with etcd back", back).await;
        service.program.terminate();
        service.stage.ends_well(&mut service.program).await;
    });
}
