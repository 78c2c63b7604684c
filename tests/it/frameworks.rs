//! Other attributes: ours works above and below them. The examples show whole services of axum, actix and tonic.

use axum::extract::{Path, State};
use etcd_locked::{Locks, etcd_locked};
use tokio::task::yield_now;

use crate::corner::Corner;
use crate::under::{AppError, alone, name};

#[tracing::instrument(err)]
#[etcd_locked("traced/<n>")]
async fn below_instrument(n: u8) -> Result<String, AppError> {
    yield_now().await;
    Ok(name())
}

struct Traced(u32);

impl Traced {
    #[etcd_locked("traced/<self.0>/above")]
    #[tracing::instrument(skip(self, secret), fields(id = self.0), ret)]
    async fn above_instrument(&mut self, secret: &str) -> Result<String, AppError> {
        if self.0 == 0 {
            return Ok(secret.to_owned());
        }
        self.0 -= 1;
        yield_now().await;
        Ok(name())
    }
}

#[test]
fn above_and_below_tracing_instrument() {
    alone(async {
        assert_eq!(below_instrument(7).await.unwrap(), "traced/7");
        let mut traced = Traced(1);
        assert_eq!(traced.above_instrument("secret").await.unwrap(), "traced/1/above");
        assert_eq!(traced.above_instrument("secret").await.unwrap(), "secret");
    });
}

#[axum::debug_handler]
#[etcd_locked("orders/<id>")]
async fn below_debug_handler(
    State(shop): State<&'static str>,
    Path(id): Path<u64>,
    body: String,
) -> Result<String, AppError> {
    yield_now().await;
    Ok(format!("{shop} {} {body}", name()))
}

#[etcd_locked("orders/<id>/<line>", detach)]
#[axum::debug_handler]
async fn above_debug_handler(Path((id, line)): Path<(u64, u8)>) -> Result<String, AppError> {
    Ok(name())
}

#[test]
fn above_and_below_debug_handler() {
    alone(async {
        let answer = below_debug_handler(State("shop"), Path(7), "body".to_owned()).await;
        assert_eq!(answer.unwrap(), "shop orders/7 body");
        assert_eq!(above_debug_handler(Path((7, 1))).await.unwrap(), "orders/7/1");
    });
}

/// Connects the engine of a test that has no place to set one up.
async fn engine() -> Locks {
    Corner::new().await.locks().await
}

#[etcd_locked("tests/one-at-a-time", locks = &engine().await)]
#[tokio::test]
async fn works_above_tokio_test() -> Result<(), AppError> {
    yield_now().await;
    assert_eq!(name(), "tests/one-at-a-time");
    Ok(())
}
