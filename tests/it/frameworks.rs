//! Attributes of other crates: ours works above and below them. `tests/works-with` has more, with the frameworks' routers.

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::handler::Handler;
use etcd_locked::{Locks, etcd_locked};
use tokio::task::yield_now;

use crate::corner::Corner;
use crate::under::{AppError, alone, name};

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

/// Connects the engine for a test that cannot set one up itself.
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

/// Annotated functions, each of which calls the next.
macro_rules! nested {
    ($(#[$attribute:meta])* $last:ident) => {
        $(#[$attribute])*
        async fn $last(depth: u8) -> Result<String, AppError> { Ok(name()) }
    };
    ($(#[$attribute:meta])* $function:ident $next:ident $($others:ident)*) => {
        $(#[$attribute])*
        async fn $function(depth: u8) -> Result<String, AppError> { $next(depth + 1).await }
        nested!($(#[$attribute])* $next $($others)*);
    };
}

nested!(#[etcd_locked("bare/<depth>")] a1 a2 a3 a4 a5 a6 a7 a8 a9 a10 a11 a12 a13 a14 a15 a16);
nested!(#[etcd_locked("above/<depth>")] #[tracing::instrument] b1 b2 b3 b4 b5 b6 b7 b8 b9 b10);
nested!(#[tracing::instrument] #[etcd_locked("below/<depth>")] c1 c2 c3 c4 c5 c6 c7 c8 c9 c10);

/// Calls a handler. As with a router, rustc must prove that its future, and every future inside it, is `Send`.
async fn succeeds<T>(handler: impl Handler<T, ()>) -> bool {
    handler.call(Request::new(Body::empty()), ()).await.status().is_success()
}

#[test]
fn nested_functions_stay_below_the_recursion_limit() {
    alone(async {
        assert!(succeeds(async || a1(1).await).await);
        assert!(succeeds(async || b1(1).await).await);
        assert!(succeeds(async || c1(1).await).await);
    });
}
