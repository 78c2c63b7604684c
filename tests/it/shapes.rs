//! Shapes of annotated functions: each compiles, runs under its lock, and answers as it would without the attribute.

use std::borrow::Cow;
use std::error::Error;
use std::fmt::Display;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use etcd_locked::{LockError, LockKey, etcd_locked};
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::under::{AppError, alone, name};

#[derive(Clone)]
struct Shop {
    shard: u32,
    title: String,
}

fn shop() -> Shop {
    Shop { shard: 3, title: "corner shop".to_owned() }
}

impl Shop {
    #[etcd_locked("shops/<self.shard>")]
    async fn by_reference(&self, suffix: &str) -> Result<(String, &String), LockError> {
        Ok((name() + suffix, &self.title))
    }

    #[etcd_locked("shops/<self.shard>")]
    async fn by_mutable_reference(&mut self) -> Result<&mut String, LockError> {
        self.title = name();
        yield_now().await;
        Ok(&mut self.title)
    }

    #[etcd_locked("shops/<self.title>")]
    async fn by_value(mut self) -> Result<Self, LockError> {
        self.shard += 1;
        self.title = name();
        Ok(self)
    }

    #[etcd_locked("shops/<self.shard>")]
    async fn in_an_arc(self: Arc<Self>) -> Result<(String, Arc<Self>), LockError> {
        Ok((name(), self))
    }

    #[etcd_locked("shops/<self.shard>")]
    async fn in_an_rc(self: Rc<Self>) -> Result<String, LockError> {
        yield_now().await;
        Ok(name() + &self.title)
    }

    #[etcd_locked("shops/<self.shard>")]
    async fn in_a_box(self: Box<Self>) -> Result<(String, Box<Self>), LockError> {
        Ok((name(), self))
    }

    #[etcd_locked("shops/<self.shard>")]
    async fn pinned(mut self: Pin<&mut Self>) -> Result<String, LockError> {
        self.shard += 1;
        Ok(name())
    }

    #[etcd_locked("shops/<self.shard>")]
    async fn by_reference_to_an_arc(self: &Arc<Self>) -> Result<(String, Arc<Self>), LockError> {
        Ok((name(), Arc::clone(self)))
    }

    #[etcd_locked("shops/<other.shard>")]
    async fn associated(other: &Self) -> Result<(String, Self), LockError> {
        Ok((name(), Self::clone(other)))
    }
}

#[test]
fn methods_with_any_self() {
    alone(async {
        let mut shop = shop();
        let (seen, title) = shop.by_reference("!").await.unwrap();
        assert_eq!((seen.as_str(), title.as_str()), ("shops/3!", "corner shop"));
        shop.by_mutable_reference().await.unwrap().push('?');
        assert_eq!(shop.title, "shops/3?");
        shop.title = "a/b".to_owned();
        let mut shop = shop.by_value().await.unwrap();
        assert_eq!((shop.shard, shop.title.as_str()), (4, "shops/a%2Fb"));
        let arc = Arc::new(shop.clone());
        let (seen, same) = Arc::clone(&arc).in_an_arc().await.unwrap();
        assert_eq!(seen, "shops/4");
        let (seen, other) = arc.by_reference_to_an_arc().await.unwrap();
        assert_eq!(seen, "shops/4");
        assert!(Arc::ptr_eq(&same, &arc) && Arc::ptr_eq(&other, &arc));
        assert_eq!(Rc::new(shop.clone()).in_an_rc().await.unwrap(), "shops/4shops/a%2Fb");
        let (seen, boxed) = Box::new(shop.clone()).in_a_box().await.unwrap();
        assert_eq!((seen.as_str(), boxed.shard), ("shops/4", 4));
        // The name is the one at the call.
        assert_eq!(Pin::new(&mut shop).pinned().await.unwrap(), "shops/4");
        let (seen, shop) = Shop::associated(&shop).await.unwrap();
        assert_eq!((seen.as_str(), shop.shard), ("shops/5", 5));
    });
}

#[etcd_locked("generic/<key>")]
async fn generic<K, T: Clone>(key: K, value: &T) -> Result<(String, T), LockError>
where
    K: LockKey + Send,
{
    yield_now().await;
    drop(key);
    Ok((name(), value.clone()))
}

struct Repository<T, const N: usize>([T; N]);

impl<T: LockKey + Copy, const N: usize> Repository<T, N> {
    #[etcd_locked("repositories/<first>")]
    async fn all<U: From<T>>(&self, first: T) -> Result<(String, [U; N]), LockError> {
        let _ = first;
        Ok((name(), self.0.map(U::from)))
    }
}

#[test]
fn generics() {
    alone(async {
        assert_eq!(generic(7_u8, &"seven").await.unwrap(), ("generic/7".to_owned(), "seven"));
        assert_eq!(generic("a b", &[1]).await.unwrap(), ("generic/a%20b".to_owned(), [1]));
    });
}

#[test]
fn const_generics_and_generics_of_the_impl() {
    alone(async {
        let (seen, all) = Repository([1_u8, 2]).all::<u64>(1).await.unwrap();
        assert_eq!((seen.as_str(), all), ("repositories/1", [1_u64, 2]));
    });
}

#[etcd_locked("lifetimes/<name>")]
async fn longer<'a, 'b: 'a>(
    name: &str,
    one: &'a str,
    other: &'b str,
) -> Result<&'a str, LockError> {
    Ok(if one.len() > other.len() { one } else { other })
}

#[etcd_locked("lifetimes/<text>")]
async fn elided(text: &str, more: Cow<'_, str>) -> Result<String, LockError> {
    yield_now().await;
    Ok(name() + &more)
}

#[test]
fn lifetimes() {
    alone(async {
        let one = "one".to_owned();
        let longer = {
            let name = "n".to_owned();
            longer(&name, &one, "other").await.unwrap()
        };
        assert_eq!(longer, "other");
        assert_eq!(elided("x", "!".into()).await.unwrap(), "lifetimes/x!");
    });
}

#[etcd_locked("opaque/<id>")]
async fn opaque(
    id: impl LockKey + Copy,
    each: impl AsyncFn(u8) -> u8,
) -> Result<(String, impl Iterator<Item = u8>, Vec<impl Display>), LockError> {
    let first = each(1).await;
    if first == 0 {
        return Ok((name(), 0..1, vec!["none"]));
    }
    Ok((name(), first..first + 2, vec!["some"]))
}

#[test]
fn impl_trait_in_arguments_and_answers() {
    alone(async {
        let (seen, numbers, words) = opaque(7, async |n| n * 2).await.unwrap();
        assert_eq!(seen, "opaque/7");
        assert_eq!(numbers.collect::<Vec<_>>(), [2, 3]);
        assert_eq!(words[0].to_string(), "some");
        let (_, numbers, _) = opaque("x", async |_| 0).await.unwrap();
        assert_eq!(numbers.collect::<Vec<_>>(), [0]);
    });
}

struct Order {
    id: u64,
    lines: (u8, Arc<str>),
    r#type: char,
}

#[etcd_locked("orders/<id>/<sku>/<kind>/<first>/<a>")]
async fn patterns(
    Order { id, lines: (_, sku), r#type: kind }: Order,
    [first, .., mut last]: [u8; 3],
    ref whole @ (a, _): (u8, u8),
) -> Result<(String, u8), LockError> {
    last += whole.1;
    Ok((name(), last))
}

#[etcd_locked("orders/<order.id>/<order.lines.1>/<order.r#type>/<r#type>")]
async fn field_paths(order: &Order, r#type: &str) -> Result<String, LockError> {
    Ok(name())
}

#[test]
fn destructured_patterns_and_fields() {
    alone(async {
        let order = || Order { id: 1, lines: (2, "sku".into()), r#type: '/' };
        assert_eq!(
            patterns(order(), [3, 4, 5], (6, 7)).await.unwrap(),
            ("orders/1/sku/%2F/3/6".to_owned(), 12)
        );
        assert_eq!(field_paths(&order(), "t").await.unwrap(), "orders/1/sku/%2F/t");
    });
}

#[etcd_locked("ends/<how>")]
async fn ends(how: &str) -> Result<String, AppError> {
    if how == "returns" {
        return Ok(name());
    }
    let number: u8 = how.parse()?;
    yield_now().await;
    Ok(format!("{} {number}", name()))
}

#[test]
fn return_and_question_mark_end_the_body_and_release() {
    alone(async {
        for _ in 0..2 {
            // The second round would wait if the first had not released.
            assert_eq!(ends("returns").await.unwrap(), "ends/returns");
            assert_eq!(ends("7").await.unwrap(), "ends/7 7");
            assert_eq!(
                ends("x").await.unwrap_err(),
                AppError("invalid digit found in string".to_owned())
            );
        }
    });
}

type Answer = Result<Box<dyn Display + Send>, Box<dyn Error + Send + Sync>>;

#[etcd_locked("coercions/<how>")]
async fn coerced(how: u8) -> Answer {
    match how {
        0 => return Ok(Box::new(name())),
        1 => return Err("early".into()),
        2 => Err("question mark")?,
        _ => {}
    }
    Ok(Box::new(how))
}

#[test]
fn coercions_where_the_body_returns() {
    alone(async {
        assert_eq!(coerced(0).await.unwrap().to_string(), "coercions/0");
        let error = |answer: Answer| answer.err().map(|error| error.to_string());
        assert_eq!(error(coerced(1).await).as_deref(), Some("early"));
        assert_eq!(error(coerced(2).await).as_deref(), Some("question mark"));
        assert_eq!(coerced(3).await.unwrap().to_string(), "3");
    });
}

trait Keeper {
    fn shard(&self) -> u32;

    async fn keep(&self, id: u64) -> Result<String, AppError>;

    #[etcd_locked("defaults/<id>")]
    async fn keep_by_default(&mut self, id: u64) -> Result<(String, u32), AppError> {
        Ok((name(), self.shard()))
    }
}

impl Keeper for Shop {
    fn shard(&self) -> u32 {
        self.shard
    }

    #[etcd_locked("shops/<self.shard>/orders/<id>")]
    async fn keep(&self, id: u64) -> Result<String, AppError> {
        Ok(name())
    }
}

async fn kept(keeper: &mut impl Keeper) -> (String, (String, u32)) {
    (keeper.keep(7).await.expect("kept"), keeper.keep_by_default(8).await.expect("kept"))
}

#[test]
fn trait_methods() {
    alone(async {
        let seen = kept(&mut shop()).await;
        assert_eq!(seen, ("shops/3/orders/7".to_owned(), ("defaults/8".to_owned(), 3)));
    });
}

#[async_trait::async_trait]
trait Dynamic: Sync {
    async fn keep(&self, id: u64) -> Result<String, AppError>;

    #[etcd_locked("defaults/<id>")]
    async fn keep_by_default(&self, id: u64) -> Result<String, AppError> {
        Ok(format!("{} {id}", name()))
    }
}

#[async_trait::async_trait]
impl Dynamic for Shop {
    #[etcd_locked("shops/orders/<id>")]
    async fn keep(&self, id: u64) -> Result<String, AppError> {
        if id == 0 {
            return Ok(format!("{} early", name()));
        }
        yield_now().await;
        Ok(format!("{} of {}", name(), self.title))
    }
}

#[test]
fn methods_of_async_trait() {
    alone(async {
        let keeper: Box<dyn Dynamic + Send> = Box::new(shop());
        assert_eq!(keeper.keep(7).await.unwrap(), "shops/orders/7 of corner shop");
        assert_eq!(keeper.keep(0).await.unwrap(), "shops/orders/0 early");
        assert_eq!(keeper.keep_by_default(8).await.unwrap(), "defaults/8 8");
    });
}

#[etcd_locked("futures/<id>")]
fn returned(id: u64) -> impl Future<Output = Result<String, AppError>> + Send {
    async move {
        yield_now().await;
        Ok(name())
    }
}

#[test]
fn a_function_that_returns_a_future() {
    alone(async {
        assert_eq!(returned(7).await.unwrap(), "futures/7");
    });
}

// Our lints forbid `unsafe`, but not in the expansion of another crate's macro.
etcd_locked_tests::unsafe_function!(unsafe_to_call, call_it, name());

#[test]
fn an_unsafe_function() {
    alone(async {
        assert_eq!(call_it(7).await.unwrap(), "unsafe/7");
    });
}

macro_rules! locked {
    ($name:ident, $template:literal, $id:ident: $ty:ty, $wait:literal, $body:block) => {
        #[etcd_locked($template, wait = $wait)]
        async fn $name($id: $ty) -> Result<($ty, String), LockError> $body
    };
    (hidden $name:ident $ty:ident) => {
        #[etcd_locked("hidden/<id>")]
        async fn $name(id: u8) -> Result<String, LockError> {
            Ok(name())
        }

        impl $ty {
            #[etcd_locked("hidden/<self.shard>/<id>")]
            async fn $name(&self, id: u8) -> Result<String, LockError> {
                Ok(name())
            }
        }
    };
}

locked!(made_by_a_macro, "made/<id>", id: u64, "5s", { Ok((id + 1, name())) });
locked!(hidden in_a_macro Shop);

#[test]
fn functions_that_a_macro_writes() {
    alone(async {
        assert_eq!(made_by_a_macro(7).await.unwrap(), (8, "made/7".to_owned()));
        assert_eq!(in_a_macro(7).await.unwrap(), "hidden/7");
        assert_eq!(shop().in_a_macro(7).await.unwrap(), "hidden/3/7");
    });
}

/// A re-export, as in a team's own facade crate.
mod platform {
    pub(super) mod locking {
        pub(crate) use etcd_locked::*;
    }
}

#[crate::shapes::platform::locking::etcd_locked("renamed/<id>", wait = "5s", crate = crate::shapes::platform::locking)]
async fn renamed(id: u64) -> Result<String, platform::locking::LockError> {
    Ok(name())
}

#[test]
fn a_renamed_crate() {
    alone(async {
        assert_eq!(renamed(7).await.unwrap(), "renamed/7");
    });
}

#[etcd_locked("shadow/<__lock>")]
async fn shadowing(__lock: u8, __names: &str, __result: u8) -> Result<(String, u8), LockError> {
    enum Shadow {
        Result,
    }
    use Shadow::*;
    let _ = Result;
    let __body = __lock;
    Ok((name() + __names, __body + __result))
}

mod names_of_the_users_own {
    #![allow(non_camel_case_types, dead_code)]

    mod core {}
    mod std {}
    mod etcd_locked {}
    struct Option;
    struct Some;
    struct None;
    struct Ok;
    struct Err;
    struct Box;

    #[::etcd_locked::etcd_locked("own/<id>", wait = "5s", ttl = "30s", map_err = |error| error)]
    pub(super) async fn own_names(id: u64) -> Result<String, ::etcd_locked::LockError> {
        Result::Ok(super::name())
    }
}

#[test]
fn user_names_do_not_collide_with_ours() {
    alone(async {
        assert_eq!(shadowing(1, "!", 2).await.unwrap(), ("shadow/1!".to_owned(), 3));
        assert_eq!(names_of_the_users_own::own_names(7).await.unwrap(), "own/7");
    });
}

#[etcd_locked("not-send/<id>")]
async fn not_send(id: Rc<u64>) -> Result<(String, u64), LockError> {
    let inner = Rc::clone(&id);
    yield_now().await;
    Ok((name(), *inner))
}

#[test]
fn bodies_that_are_not_send() {
    alone(async {
        let call = pin!(not_send(Rc::new(7)));
        assert_eq!(call.await.unwrap(), ("not-send/7".to_owned(), 7));
    });
}

#[etcd_locked("diverging")]
async fn diverging() -> Result<u8, LockError> {
    loop {
        yield_now().await;
    }
}

#[etcd_locked("panicking")]
async fn panicking() -> Result<u8, LockError> {
    panics()
}

fn panics() -> ! {
    panic!("on purpose")
}

#[test]
fn bodies_that_never_return() {
    alone(async {
        // The call is dropped while its body runs.
        let dropped = timeout(Duration::from_millis(300), diverging()).await;
        assert!(dropped.is_err());
    });
}

#[etcd_locked("inner-attributes")]
async fn inner_attributes() -> Result<u8, LockError> {
    #![allow(unused_variables)]
    let unused = 1;
    Ok(2)
}

#[etcd_locked("items/<n>")]
async fn items_in_the_body(n: u8) -> Result<u8, LockError> {
    const ONE: u8 = 1;
    fn twice(n: u8) -> u8 {
        n * 2
    }
    Ok(twice(n) + ONE)
}

#[test]
fn inner_attributes_and_items_in_the_body() {
    alone(async {
        assert_eq!(inner_attributes().await.unwrap(), 2);
        assert_eq!(items_in_the_body(7).await.unwrap(), 15);
    });
}

fn is_send<F: Future + Send>(_: F) {}

#[test]
fn futures_of_send_bodies_are_send() {
    is_send(shop().by_reference(""));
    is_send(Arc::new(shop()).in_an_arc());
    is_send(generic(7, &1));
    is_send(coerced(1));
    is_send(ends(""));
    is_send(returned(7));
    is_send(panicking());
    is_send(made_by_a_macro(1));
    is_send(shop().in_a_macro(1));
}
