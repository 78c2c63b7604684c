//! Handlers of web frameworks, called through their routers.

use etcd_locked::{LockError, etcd_locked, lock_names, testing};
use tower::ServiceExt;

use crate::{both_orders, under};

lock_names! {
    Order = "orders/<id: u64>";
}

/// State of the services.
type Shop = &'static str;

/// Calls the handlers of both orders while order 7 is free, and while another process holds it: then their status is `locked`.
async fn assert_locks(locked: u16, call: impl AsyncFn(&'static str) -> u16) {
    let etcd = testing::start().await.unwrap();
    let other = etcd.second().await.unwrap();
    for path in ["/below/7", "/above/7"] {
        assert_eq!(call(path).await, 200, "{path}");
        let held = other.lock("orders/7").await.expect("free again");
        assert_eq!(call(path).await, locked, "{path}");
        held.release().await.unwrap();
    }
}

both_orders! { mod on_axum;
    #[utoipa::path(post, path = "/orders/{id}", responses((status = 200, body = String)))]
    #[etcd_locked("orders/<id>", wait = "none")]
    #[axum::debug_handler]
    pub async fn ship(
        axum::extract::State(shop): axum::extract::State<Shop>,
        axum::extract::Path(id): axum::extract::Path<u64>,
        axum::Json(pieces): axum::Json<u8>,
    ) -> Result<axum::Json<String>, LockError> {
        Ok(axum::Json(format!("{shop} {pieces} {}", under("orders/7"))))
    }
}

#[derive(utoipa::OpenApi)]
#[openapi(paths(on_axum::below::ship, on_axum::above::ship))]
struct Api;

/// For both orders of `debug_handler`, see `tests/it/frameworks.rs`.
#[tokio::test]
async fn axum_and_utoipa() {
    use axum::{Router, body::Body, http::Request, routing::post};
    let app = Router::new().route("/below/{id}", post(on_axum::below::ship));
    let app = app.route("/above/{id}", post(on_axum::above::ship)).with_state("shop");
    let call = async |path| {
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.body(Body::from("3")).unwrap();
        app.clone().oneshot(request).await.unwrap().status().as_u16()
    };
    assert_locks(423, call).await;
    let documented = <Api as utoipa::OpenApi>::openapi();
    assert!(documented.paths.paths.contains_key("/orders/{id}"));
}

/// The stream owns the guard: the lock is held until the last line is sent, or the client has gone.
async fn lines(id: axum::extract::Path<u64>) -> Result<axum::body::Body, LockError> {
    let order = etcd_locked::lock(Order { id: *id }).await?;
    let lines = futures::stream::unfold((order, 0), async |(order, n)| {
        let line = (n < 3 && order.is_held()).then(|| format!("line {n}\n"))?;
        Some((Ok::<_, LockError>(line), (order, n + 1)))
    });
    Ok(axum::body::Body::from_stream(lines))
}

#[tokio::test]
async fn streamed_answer_under_a_guard() {
    let etcd = testing::start().await.unwrap();
    let lines = lines(axum::extract::Path(7)).await.unwrap().into_data_stream();
    assert_eq!(etcd.held().await, ["orders/7"]);
    drop(lines);
    assert!(etcd.held().await.is_empty());
}

both_orders! { mod on_actix;
    #[actix_web::post("/{id}")]
    #[etcd_locked(Order { id: *id }, wait = "none")]
    pub async fn ship(
        shop: actix_web::web::Data<Shop>,
        id: actix_web::web::Path<u64>,
    ) -> Result<String, LockError> {
        Ok(format!("{} {}", **shop, under("orders/7")))
    }
}

#[tokio::test]
async fn actix_web() {
    use actix_web::{App, test, web};
    let app = App::new().app_data(web::Data::new("shop"));
    let app = app.service(web::scope("/below").service(on_actix::below::ship));
    let app = app.service(web::scope("/above").service(on_actix::above::ship));
    let app = test::init_service(app).await;
    let request = |path| test::TestRequest::post().uri(path).to_request();
    let call = async |path| test::call_service(&app, request(path)).await.status().as_u16();
    assert_locks(423, call).await;
}

/// Service as tonic generates it. For both orders of `async_trait`, see `tests/it/shapes.rs`.
#[tonic::async_trait]
trait Orders {
    async fn ship(&self, id: tonic::Request<u64>)
    -> Result<tonic::Response<String>, tonic::Status>;
}

#[async_trait::async_trait] // which tonic re-exports
impl Orders for Shop {
    #[etcd_locked(Order { id: *id.get_ref() }, wait = "none")]
    async fn ship(
        &self,
        id: tonic::Request<u64>,
    ) -> Result<tonic::Response<String>, tonic::Status> {
        Ok(tonic::Response::new(format!("{self} {}", under("orders/7"))))
    }
}

#[tokio::test]
async fn tonic() {
    use {tonic::*, tonic_prost::ProstCodec, tower::service_fn};
    let method = service_fn(|request| async { "shop".ship(request).await });
    let server = service_fn(async |request| {
        let mut server = server::Grpc::new(ProstCodec::<String, u64>::default());
        Ok::<_, Status>(server.unary(method, request).await)
    });
    let call = async |_| {
        let path = "/shop.Orders/Ship".parse().unwrap();
        let (mut client, codec) = (client::Grpc::new(server), ProstCodec::<u64, String>::default());
        client.unary(Request::new(7), path, codec).await.map_or_else(|it| it.code() as u16, |_| 200)
    };
    assert_locks(Code::Aborted as u16, call).await;
}

// In `macro_rules!`, such as `both_orders`, rocket's attributes do not compile.
#[rocket::post("/below/<id>")]
#[etcd_locked("orders/<id>", wait = "none", map_err = |_| rocket::http::Status::Locked)]
async fn below(id: u64, shop: &rocket::State<Shop>) -> Result<String, rocket::http::Status> {
    Ok(format!("{shop} {}", under("orders/7")))
}

#[etcd_locked("orders/<id>", wait = "none", map_err = |_| rocket::http::Status::Locked)]
#[rocket::post("/above/<id>")]
async fn above(id: u64, shop: &rocket::State<Shop>) -> Result<String, rocket::http::Status> {
    Ok(format!("{shop} {}", under("orders/7")))
}

#[tokio::test]
async fn rocket() {
    let app = rocket::build().manage("shop").mount("/", rocket::routes![below, above]);
    let client = rocket::local::asynchronous::Client::untracked(app).await.unwrap();
    assert_locks(423, async |path| client.post(path).dispatch().await.status().code).await;
}

both_orders! { mod on_poem;
    #[poem::handler]
    #[etcd_locked("orders/<id>", wait = "none", map_err = |it| poem::Error::new(it, poem::http::StatusCode::LOCKED))]
    pub async fn ship(
        poem::web::Path(id): poem::web::Path<u64>,
        poem::web::Data(shop): poem::web::Data<&Shop>,
    ) -> Result<String, poem::Error> {
        Ok(format!("{shop} {}", under("orders/7")))
    }
}

#[tokio::test]
async fn poem() {
    use poem::{Endpoint, EndpointExt, Request, Route, http::Method, post};
    let app = Route::new().at("/below/:id", post(on_poem::below::ship));
    let app = app.at("/above/:id", post(on_poem::above::ship)).data("shop");
    let request = |path| Request::builder().method(Method::POST).uri_str(path).finish();
    let call = async |path| app.get_response(request(path)).await.status().as_u16();
    assert_locks(423, call).await;
}

both_orders! { mod on_salvo;
    #[salvo::handler]
    #[etcd_locked(Order { id: request.param("id").unwrap_or(0) }, wait = "none", map_err = |_| salvo::http::StatusError::locked())]
    pub async fn ship(request: &mut salvo::Request) -> Result<String, salvo::http::StatusError> {
        Ok(format!("{} {}", request.uri(), under("orders/7")))
    }
}

#[tokio::test]
async fn salvo() {
    use salvo::{Router, Service, test::TestClient};
    let app = Router::new().push(Router::with_path("below/{id}").post(on_salvo::below::ship));
    let app = app.push(Router::with_path("above/{id}").post(on_salvo::above::ship));
    let app = Service::new(app);
    let request = |path| TestClient::post(format!("http://shop{path}"));
    let call = async |path| request(path).send(&app).await.status_code.unwrap().as_u16();
    assert_locks(423, call).await;
}

struct Query;

#[etcd_locked("orders/<id>", wait = "none")]
#[async_graphql::Object]
impl Query {
    async fn count(&self, id: u64) -> async_graphql::Result<String> {
        Ok(under(format!("orders/{id}")))
    }
}

struct Mutation;

#[async_graphql::Object]
impl Mutation {
    #[etcd_locked("orders/<id>", wait = "none")]
    async fn ship(&self, id: u64) -> async_graphql::Result<String> {
        Ok(under(format!("orders/{id}")))
    }
}

#[tokio::test]
async fn async_graphql() {
    let schema = async_graphql::Schema::new(Query, Mutation, async_graphql::EmptySubscription);
    let call = async |path| {
        let calls = ["mutation { ship(id: 7) }", "{ count(id: 7) }"];
        let answer = schema.execute(calls[usize::from(path == "/above/7")]).await;
        if answer.is_ok() { 200 } else { 423 }
    };
    assert_locks(423, call).await;
}
