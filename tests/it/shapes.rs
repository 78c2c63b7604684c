//! Shapes of functions the attribute leaves as they are. That this file compiles is most of the test; what the
//! locked functions do is tested where the lock is.
#![allow(dead_code)] // compiled, not run

use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use etcd_locked::{LockError, Locks, etcd_locked};

#[derive(Debug)]
struct AppError;

impl From<LockError> for AppError {
    fn from(_: LockError) -> Self {
        AppError
    }
}

impl axum::response::IntoResponse for AppError {
    fn into_response(self) -> axum::response::Response {
        axum::response::IntoResponse::into_response("refused")
    }
}

#[derive(Clone)]
struct Shop {
    shard: u32,
    name: String,
    locks: Locks,
}

struct Order {
    id: u64,
    lines: (u8, Line),
    r#type: String,
}

struct Line {
    sku: Arc<str>,
}

trait Keeper {
    async fn keep(&self, id: u64) -> Result<(), AppError>;

    #[etcd_locked("default/<id>")]
    async fn with_body(&self, id: u64) -> Result<u64, AppError> {
        self.keep(id).await?;
        Ok(id)
    }
}

impl Keeper for Shop {
    #[etcd_locked("shops/<self.shard>/orders/<id>")]
    async fn keep(&self, id: u64) -> Result<(), AppError> {
        let _: &Self = self;
        Ok(())
    }
}

impl Shop {
    #[etcd_locked("shops/<self.name>")]
    async fn borrowed(&self, suffix: &str) -> Result<String, LockError> {
        Ok(self.name.clone() + suffix)
    }

    #[etcd_locked("shops/<self.shard>")]
    async fn mutable_borrow(&mut self) -> Result<&mut String, LockError> {
        self.name.push('!');
        Ok(&mut self.name)
    }

    #[etcd_locked("shops/<self.shard>", locks = &self.locks)]
    async fn owned(mut self) -> Result<Self, LockError> {
        self.shard += 1;
        Ok(self)
    }

    #[etcd_locked("shops/<self.shard>")]
    async fn shared(self: Arc<Self>) -> Result<Arc<Self>, LockError> {
        Ok(self)
    }

    #[etcd_locked("shops/<self.shard>")]
    async fn pinned(self: Pin<&mut Self>) -> Result<u32, LockError> {
        Ok(self.shard)
    }

    #[etcd_locked("shops/<shop.shard>")]
    async fn associated<const N: usize>(shop: &Shop) -> Result<[u8; N], LockError> {
        Ok([0; N])
    }
}

#[etcd_locked("orders/<id>")]
async fn handler(State(shop): State<Shop>, Path(id): Path<u64>) -> Result<Json<String>, AppError> {
    let _ = id;
    Ok(Json(shop.name))
}

#[etcd_locked("orders/<id>/<sku>/<kind>/<first>")]
async fn patterns(
    Order {
        id,
        lines: (_, Line { sku }),
        r#type: kind,
    }: Order,
    [first, .., mut last]: [u8; 3],
    ref whole @ (a, _): (u8, u8),
) -> Result<u8, LockError> {
    last += first + a + whole.1 + kind.len() as u8 + sku.len() as u8;
    Ok(last + id as u8)
}

#[etcd_locked("orders/<order.id>/<order.lines.0>/<order.lines.1.sku>/<order.r#type>/<r#type>")]
async fn field_paths(order: &Order, r#type: &str) -> Result<usize, LockError> {
    Ok(order.r#type.len() + r#type.len())
}

#[etcd_locked("generic/<key>")]
async fn generic<'a, K, T>(
    key: K,
    values: &'a [T],
    f: impl Fn(&T) -> bool,
) -> Result<Option<&'a T>, LockError>
where
    K: etcd_locked::LockKey,
{
    drop(key);
    Ok(values.iter().find(|value| f(value)))
}

#[etcd_locked("opaque")]
async fn opaque(n: u8) -> Result<(impl Iterator<Item = u8>, Vec<impl Display>), LockError> {
    if n == 0 {
        return Ok((0..1, vec!["none"]));
    }
    Ok((0..n, vec![]))
}

#[etcd_locked("coercions")]
async fn coercions(
    early: bool,
) -> Result<Box<dyn Display + Send>, Box<dyn std::error::Error + Send + Sync>> {
    if early {
        return Ok(Box::new(1));
    }
    "x".parse::<u8>()?;
    Err("late")?;
    Ok(Box::new("late"))
}

#[etcd_locked("diverging")]
async fn diverging() -> Result<u8, LockError> {
    loop {
        tokio::task::yield_now().await;
    }
}

#[etcd_locked("panicking")]
async fn panicking() -> Result<u8, LockError> {
    todo_later()
}

fn todo_later() -> ! {
    panic!("not now")
}

#[etcd_locked("unsafe")]
#[expect(unsafe_code)] // the function is unsafe to call, its body is not
async unsafe fn unsafe_to_call() -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("not-send")]
async fn not_send(counter: Rc<u8>) -> Result<u8, LockError> {
    tokio::task::yield_now().await;
    Ok(*counter)
}

#[etcd_locked("inner-attributes")]
async fn inner_attributes() -> Result<u8, LockError> {
    #![allow(unused_variables)]
    let unused = 1;
    Ok(2)
}

enum Shadow {
    Result,
}

#[etcd_locked("shadow/<__lock>")]
async fn shadowing(__lock: u8, __names: &str, __result: u8) -> Result<u8, LockError> {
    use Shadow::*;
    let _ = (Result, __names);
    let __body = __lock;
    Ok(__body + __result)
}

#[etcd_locked("items/<n>")]
async fn items_in_the_body(n: u8) -> Result<u8, LockError> {
    const ONE: u8 = 1;
    fn twice(n: u8) -> u8 {
        n * 2
    }
    Ok(twice(n) + ONE)
}

#[etcd_locked("outer/<n>")]
#[etcd_locked("inner/<n>")]
async fn two_locks(n: u8) -> Result<u8, LockError> {
    Ok(n)
}

#[tracing::instrument]
#[etcd_locked("traced/<n>")]
async fn below_instrument(n: u8) -> Result<u8, LockError> {
    Ok(n)
}

#[etcd_locked("traced/<n>")]
#[tracing::instrument]
async fn above_instrument(n: u8) -> Result<u8, LockError> {
    Ok(n)
}

#[etcd_locked("main", on_error = |error| panic!("{error}"))]
#[tokio::main]
async fn above_tokio_main() {
    tokio::task::yield_now().await;
}

#[etcd_locked("skip", on_held = "skip")]
async fn skip_in_a_result(n: u8) -> Result<Option<u8>, AppError> {
    Ok((n > 1).then_some(n))
}

#[etcd_locked("skip", on_held = "skip", map_err = |error| error.to_string())]
async fn skip_and_map() -> Result<(), String> {
    Err("own".to_owned())
}

#[etcd_locked("copied/<id>", on_error = |error| format!("{id} of {shop_name}: {error}"))]
async fn converted_with_arguments(id: u64, shop_name: &str) -> String {
    format!("{id}{shop_name}")
}

mod names_of_the_users_own {
    #![allow(non_camel_case_types)]

    mod core {}
    mod std {}
    mod etcd_locked {}
    struct Option;
    struct Some;
    struct None;
    struct Ok;
    struct Err;

    #[::etcd_locked::etcd_locked("own/<id>", wait = "5s", map_err = |error| error)]
    async fn own_names(id: u64) -> Result<u64, ::etcd_locked::LockError> {
        let _ = (Option, Some, None, Ok, Err);
        Result::Ok(id)
    }
}

macro_rules! locked {
    ($name:ident, $template:literal, $id:ident: $ty:ty, $wait:literal, $body:block) => {
        #[etcd_locked($template, wait = $wait)]
        async fn $name($id: $ty) -> Result<$ty, LockError> $body
    };
    (hidden $name:ident) => {
        #[etcd_locked("hidden/<id>")]
        async fn $name(id: u8) -> Result<u8, LockError> {
            Ok(id)
        }

        impl Line {
            #[etcd_locked("hidden/<self.sku>")]
            async fn $name(&self) -> Result<usize, LockError> {
                Ok(self.sku.len())
            }
        }
    };
}

locked!(made_by_a_macro, "made/<id>", id: u64, "5s", { Ok(id + 1) });
locked!(hidden in_a_macro);

fn is_send<F: Future + Send>(_: F) {}

#[test]
fn futures_of_send_bodies_are_send() {
    is_send(field_paths(
        &Order {
            id: 1,
            lines: (2, Line { sku: "a".into() }),
            r#type: String::new(),
        },
        "",
    ));
    is_send(coercions(true));
    is_send(two_locks(1));
    is_send(skip_in_a_result(1));
    is_send(converted_with_arguments(1, ""));
    is_send(made_by_a_macro(1));
}

#[test]
fn handlers_stay_handlers() {
    let _: axum::Router<Shop> =
        axum::Router::new().route("/orders/{id}", axum::routing::post(handler));
}
