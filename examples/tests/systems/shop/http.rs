//! Customer over HTTP, on a separate connection.

use std::marker::PhantomData;
use std::net::SocketAddr;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{Answer, Customer, Order, Refused, Shelf};

/// Program of a service over HTTP.
pub(crate) trait Server: Send + 'static {
    const PROGRAM: &'static str;
}

pub(crate) struct Http<S> {
    requests: SendRequest<Full<Bytes>>,
    /// Connection, closed when this is dropped.
    _connection: JoinSet<()>,
    server: PhantomData<fn(S)>,
}

impl<S: Server> Http<S> {
    async fn send(&mut self, method: Method, path: &str, body: &str) -> Result<Value, Refused> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "shop")
            .header("content-type", "application/json")
            .body(Full::from(body.to_owned()))
            .expect("a request");
        self.requests.ready().await.expect("a connection");
        let response = self.requests.send_request(request).await.expect("an answer");
        let (head, body) = response.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        let said = String::from_utf8_lossy(&body).into_owned();
        if head.status == StatusCode::OK {
            return Ok(serde_json::from_str(&said).unwrap_or_default());
        }
        let retry_after = head.headers.get("retry-after");
        let seconds = retry_after.map(|it| it.to_str().expect("text").parse().expect("seconds"));
        Err(Refused { code: head.status.as_str().to_owned(), retry_after: seconds, said })
    }
}

fn text(value: &Value, field: &str) -> String {
    let text = value[field].as_str().expect("a text");
    text.to_owned()
}

fn number(value: &Value, field: &str) -> u32 {
    let number = value[field].as_u64().expect("a number");
    number.try_into().expect("a small one")
}

fn order(value: Value) -> Order {
    Order { state: text(&value, "state"), invoice: text(&value, "invoice") }
}

impl<S: Server> Customer for Http<S> {
    const PROGRAM: &'static str = S::PROGRAM;
    const LOCKED: &'static str = "423";
    const UNAVAILABLE: &'static str = "503";

    async fn connect(service: SocketAddr) -> Self {
        let stream = TcpStream::connect(service).await.expect("a service");
        let (requests, connection) = handshake(TokioIo::new(stream)).await.expect("HTTP");
        let mut task = JoinSet::new();
        task.spawn(async move {
            let _ = connection.await; // a failure shows in the request
        });
        Http { requests, _connection: task, server: PhantomData }
    }

    async fn restock(&mut self, sku: &str, pieces: u32) {
        let path = format!("/shelves/{sku}/{pieces}");
        let restocked = self.send(Method::PUT, &path, "").await;
        restocked.expect("a shelf");
    }

    async fn shelf(&mut self, sku: &str) -> Shelf {
        let path = format!("/shelves/{sku}");
        let shelf = self.send(Method::GET, &path, "").await.expect("a shelf");
        Shelf { left: number(&shelf, "left"), sold: number(&shelf, "sold") }
    }

    async fn order(&mut self, id: u64) -> Answer {
        let path = format!("/orders/{id}");
        self.send(Method::GET, &path, "").await.map(order)
    }

    async fn place(&mut self, id: u64, sku: &str) -> Answer {
        let path = format!("/orders/{id}");
        let body = format!(r#"{{"sku": "{sku}", "pieces": 1}}"#);
        self.send(Method::PUT, &path, &body).await.map(order)
    }

    async fn invoice(&mut self, id: u64) -> Answer {
        let path = format!("/orders/{id}/invoice");
        self.send(Method::POST, &path, "").await.map(order)
    }

    async fn ready(&mut self) -> bool {
        match self.send(Method::GET, "/ready", "").await {
            Ok(_) => true,
            Err(refused) => {
                assert_eq!(refused.code, Self::UNAVAILABLE, "{refused:?}");
                false
            }
        }
    }

    async fn holds(&mut self) -> Vec<String> {
        let status = self.send(Method::GET, "/locks", "").await.expect("a list");
        let held = status["held"].as_array().expect("a list");
        held.iter().map(|lock| text(lock, "name")).collect()
    }
}
