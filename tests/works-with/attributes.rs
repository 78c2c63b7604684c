//! Attributes that change a function, methods of traits, services of tower, and streams of calls.

use etcd_locked::{LockError, etcd_locked, testing};
use futures::{StreamExt, TryStreamExt, stream};
use tower::ServiceExt;

use crate::{both_orders, under};

both_orders! { mod traced;
    #[tracing::instrument(skip(secret), err, ret)]
    #[etcd_locked("orders/<id>")]
    pub async fn ship(id: u64, secret: &str) -> Result<String, LockError> {
        Ok(format!("{secret} {}", under(format!("orders/{id}"))))
    }
}

both_orders! { mod recursive;
    #[async_recursion::async_recursion]
    #[etcd_locked("folders/<depth>")]
    pub async fn walk(depth: u8, path: &str) -> Result<String, LockError> {
        let path = format!("{path} {}", under(format!("folders/{depth}")));
        if depth == 1 { Ok(path) } else { walk(depth - 1, &path).await }
    }
}

both_orders! { mod built;
    #[bon::builder]
    #[etcd_locked("orders/<id>")]
    pub async fn ship(id: u64, #[builder(default = 3)] pieces: u8) -> Result<String, LockError> {
        Ok(format!("{pieces} {}", under(format!("orders/{id}"))))
    }
}

#[tokio::test]
async fn functions_in_both_orders() {
    let _etcd = testing::start().await.unwrap();
    assert_eq!(traced::below::ship(7, "secret").await.unwrap(), "secret orders/7");
    assert_eq!(traced::above::ship(7, "secret").await.unwrap(), "secret orders/7");
    assert_eq!(recursive::below::walk(2, "").await.unwrap(), " folders/2 folders/1");
    assert_eq!(recursive::above::walk(2, "").await.unwrap(), " folders/2 folders/1");
    assert_eq!(built::below::ship().id(7).call().await.unwrap(), "3 orders/7");
    assert_eq!(built::above::ship().id(7).call().await.unwrap(), "3 orders/7");
}

both_orders! { mod cached;
    #[::cached::macros::cached]
    #[etcd_locked("reports/<day>", wait = "none")]
    pub async fn report(day: u32) -> Result<String, LockError> {
        Ok(under(format!("reports/{day}")))
    }
}

/// Above `cached`, a call takes the lock only if the cache has no value. `cached` copies what stands below it to two functions, one of
/// which calls the other.
#[tokio::test]
async fn only_above_cached() {
    let etcd = testing::start().await.unwrap();
    assert!(matches!(cached::below::report(7).await, Err(LockError::SelfDeadlock { .. })));
    assert_eq!(cached::above::report(7).await.unwrap(), "reports/7");
    let _held = etcd.second().await.unwrap().lock("reports/7").await.unwrap();
    assert_eq!(cached::above::report(7).await.unwrap(), "reports/7");
}

trait Native {
    #[etcd_locked("orders/<id>")]
    async fn native(&self, id: u64) -> Result<String, LockError> {
        Ok(under(format!("orders/{id}")))
    }
}

#[trait_variant::make(Ship: Send)]
trait LocalShip {
    async fn ship(&self, id: u64) -> Result<String, LockError>;
}

struct Shop;

impl Native for Shop {}

#[etcd_locked("orders/<id>")]
impl Ship for Shop {
    async fn ship(&self, id: u64) -> Result<String, LockError> {
        Ok(under(format!("orders/{id}")))
    }
}

#[etcd_locked("orders/<id>")]
async fn ship(id: u64) -> Result<String, LockError> {
    tokio::task::yield_now().await;
    Ok(under(format!("orders/{id}")))
}

#[tokio::test]
async fn methods_services_and_streams() {
    let _etcd = testing::start().await.unwrap();
    assert_eq!(Shop.native(7).await.unwrap(), "orders/7");
    assert_eq!(LocalShip::ship(&Shop, 7).await.unwrap(), "orders/7");
    assert_eq!(tokio::spawn(Ship::ship(&Shop, 7)).await.unwrap().unwrap(), "orders/7");
    assert_eq!(tower::service_fn(ship).oneshot(7).await.unwrap(), "orders/7");
    let calls = stream::iter([7, 8, 7]).map(ship).buffer_unordered(2);
    assert_eq!(calls.try_collect::<Vec<_>>().await.unwrap().len(), 3);
}
