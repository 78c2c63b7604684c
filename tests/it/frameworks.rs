//! Frameworks: the attribute works together with the attributes and traits of other crates.

use std::rc::Rc;
use std::sync::Arc;

use actix_web::error::ErrorLocked;
use actix_web::{App, HttpResponse, test as actix, web};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, State};
use axum::http::Request;
use axum::routing::post;
use etcd_locked::{LockError, Locks, etcd_locked};
use tokio::task::yield_now;
use tower::ServiceExt as _;

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

#[derive(Clone)]
struct Shop(&'static str);

#[axum::debug_handler]
#[etcd_locked("orders/<id>")]
async fn below_debug_handler(
    State(shop): State<Shop>,
    Path(id): Path<u64>,
    body: String,
) -> Result<String, AppError> {
    yield_now().await;
    Ok(format!("{} {} {body}", shop.0, name()))
}

#[etcd_locked("orders/<id>/<line>", wait = "none")]
#[axum::debug_handler(state = Shop)]
async fn above_debug_handler(Path((id, line)): Path<(u64, u8)>) -> Result<String, AppError> {
    Ok(name())
}

#[axum::debug_handler]
#[etcd_locked("parcels/<id>", detach)]
async fn detached_handler(Path(id): Path<u64>) -> Result<String, AppError> {
    Ok(format!("{} {id}", name()))
}

#[test]
fn axum_handlers() {
    let router = Router::new()
        .route("/orders/{id}", post(below_debug_handler))
        .route("/orders/{id}/{line}", post(above_debug_handler))
        .route("/parcels/{id}", post(detached_handler))
        .with_state(Shop("shop"));
    alone(async {
        let answer = async |uri: &str| {
            let request = Request::post(uri).body(Body::from("body")).expect("a request");
            let answer = router.clone().oneshot(request).await.expect("an answer");
            let status = answer.status().as_u16();
            let body = to_bytes(answer.into_body(), 1024).await.expect("a short body");
            (status, String::from_utf8_lossy(&body).into_owned())
        };
        assert_eq!(answer("/orders/7").await, (200, "shop orders/7 body".to_owned()));
        assert_eq!(answer("/orders/7/1").await, (200, "orders/7/1".to_owned()));
        assert_eq!(answer("/parcels/7").await, (200, "parcels/7 7".to_owned()));
        let held = etcd_locked::lock("orders/7/2").await.unwrap();
        let (status, said) = answer("/orders/7/2").await;
        assert_eq!(status, 423, "{said}");
        held.release().await.unwrap();
    });
}

// actix's `Path` derefs to the values, so their fields are fields of the argument.
#[actix_web::post("/orders/{id}")]
#[etcd_locked("orders/<path.0>")]
async fn below_route(path: web::Path<(u64,)>, body: String) -> Result<HttpResponse, AppError> {
    let not_send = Rc::new(path.0);
    yield_now().await;
    Ok(HttpResponse::Ok().body(format!("{} {not_send} {body}", name())))
}

#[etcd_locked("orders/<path.0>/<path.1>", wait = "none", map_err = ErrorLocked)]
#[actix_web::post("/orders/{id}/{line}")]
async fn above_route(path: web::Path<(u64, u8)>) -> actix_web::Result<String> {
    let (order, line) = path.into_inner();
    Ok(format!("{} {order} {line}", name()))
}

#[test]
fn actix_handlers() {
    alone(async {
        let app = App::new().service(below_route).service(above_route);
        let app = actix::init_service(app).await;
        let answer = async |uri: &str| {
            let request = actix::TestRequest::post().uri(uri).set_payload("body");
            let answer = actix::call_service(&app, request.to_request()).await;
            let status = answer.status().as_u16();
            let body = actix::read_body(answer).await;
            (status, String::from_utf8_lossy(&body).into_owned())
        };
        assert_eq!(answer("/orders/7").await, (200, "orders/7 7 body".to_owned()));
        assert_eq!(answer("/orders/7/1").await, (200, "orders/7/1 7 1".to_owned()));
        let held = etcd_locked::lock("orders/7/2").await.unwrap();
        let (status, said) = answer("/orders/7/2").await;
        assert_eq!(status, 423, "{said}");
        held.release().await.unwrap();
    });
}

/// A service trait as tonic-build writes it.
#[tonic::async_trait]
trait Warehouse: Send + Sync + 'static {
    async fn ship(
        &self,
        order: tonic::Request<u64>,
    ) -> Result<tonic::Response<String>, tonic::Status>;
}

struct Desk {
    number: u32,
}

fn unavailable(error: LockError) -> tonic::Status {
    tonic::Status::unavailable(error.to_string())
}

#[tonic::async_trait]
impl Warehouse for Desk {
    #[etcd_locked(
        format!("shipped/{}", order.get_ref()),
        wait = "none",
        map_err = unavailable
    )]
    async fn ship(
        &self,
        order: tonic::Request<u64>,
    ) -> Result<tonic::Response<String>, tonic::Status> {
        if order.into_inner() == 0 {
            return Err(tonic::Status::not_found("no order"));
        }
        Ok(tonic::Response::new(format!("{} at {}", name(), self.number)))
    }
}

#[test]
fn tonic_service_methods() {
    alone(async {
        let desk: Arc<dyn Warehouse> = Arc::new(Desk { number: 3 });
        let ship = |order| desk.ship(tonic::Request::new(order));
        assert_eq!(ship(7).await.unwrap().into_inner(), "shipped/7 at 3".to_owned());
        let own = ship(0).await.unwrap_err();
        assert_eq!(own.code(), tonic::Code::NotFound, "the body's own error");
        let held = etcd_locked::lock("shipped/7").await.unwrap();
        assert_eq!(ship(7).await.unwrap_err().code(), tonic::Code::Unavailable, "the lock's");
        held.release().await.unwrap();
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
