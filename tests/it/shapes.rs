//! Shapes of annotated functions and `impl` blocks: each compiles, runs under its lock, and returns what it would without one.

use std::error::Error;
use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use etcd_locked::{LockError, LockKey, current, etcd_locked};
use tokio::sync::Barrier;
use tokio::task::yield_now;

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
    async fn pinned(mut self: Pin<&mut Self>) -> Result<String, LockError> {
        self.shard += 1;
        Ok(name())
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
        assert!(Arc::ptr_eq(&same, &arc));
        // The name has the value from when the call was made.
        assert_eq!(Pin::new(&mut shop).pinned().await.unwrap(), "shops/4");
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

#[test]
fn generics() {
    alone(async {
        assert_eq!(generic(7_u8, &"seven").await.unwrap(), ("generic/7".to_owned(), "seven"));
        assert_eq!(generic("a b", &[1]).await.unwrap(), ("generic/a%20b".to_owned(), [1]));
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

#[test]
fn lifetimes() {
    alone(async {
        let one = "one".to_owned();
        let longer = {
            let name = "n".to_owned();
            longer(&name, &one, "other").await.unwrap()
        };
        assert_eq!(longer, "other");
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
fn return_and_question_mark_end_the_body_and_release() {
    alone(async {
        assert_eq!(coerced(0).await.unwrap().to_string(), "coercions/0");
        let error = |answer: Answer| answer.err().map(|error| error.to_string());
        assert_eq!(error(coerced(1).await).as_deref(), Some("early"));
        assert_eq!(error(coerced(2).await).as_deref(), Some("question mark"));
        assert_eq!(coerced(3).await.unwrap().to_string(), "3");
    });
}

#[etcd_locked("futures/<id>")]
fn returned(id: u64) -> impl Future<Output = Result<String, AppError>> + Send {
    async move {
        yield_now().await;
        Ok(name())
    }
}

// Our lints forbid `unsafe`, but not in the expansion of another crate's macro.
etcd_locked_tests::unsafe_function!(unsafe_to_call, call_it, name());

/// Re-export, as in a team's facade crate.
mod platform {
    pub(super) mod locking {
        pub(crate) use etcd_locked::*;
    }
}

#[crate::shapes::platform::locking::etcd_locked("renamed/<id>", wait = "5s", crate = crate::shapes::platform::locking)]
async fn renamed(id: u64) -> Result<String, platform::locking::LockError> {
    Ok(name())
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

#[etcd_locked("not-send/<id>")]
async fn not_send(id: Rc<u64>) -> Result<(String, u64), LockError> {
    let inner = Rc::clone(&id);
    yield_now().await;
    Ok((name(), *inner))
}

#[test]
fn futures_unsafe_functions_and_names_of_ones_own() {
    alone(async {
        assert_eq!(returned(7).await.unwrap(), "futures/7");
        assert_eq!(call_it(7).await.unwrap(), "unsafe/7");
        assert_eq!(renamed(7).await.unwrap(), "renamed/7");
        assert_eq!(not_send(Rc::new(7)).await.unwrap(), ("not-send/7".to_owned(), 7));
        assert_eq!(shadowing(1, "!", 2).await.unwrap(), ("shadow/1!".to_owned(), 3));
        assert_eq!(names_of_the_users_own::own_names(7).await.unwrap(), "own/7");
    });
}

fn is_send<F: Future + Send>(_: F) {}

#[test]
fn futures_of_send_bodies_are_send() {
    is_send(shop().by_reference(""));
    is_send(Arc::new(shop()).in_an_arc());
    is_send(generic(7, &1));
    is_send(coerced(1));
    is_send(returned(7));
}

struct Shelf<T, const N: usize> {
    id: u32,
    goods: [T; N],
}

type Goods<T, const N: usize> = [T; N];

/// Block with every kind of item that a block may have.
#[etcd_locked("shelves/<self.id>", wait = "5s")]
#[allow(dead_code)]
impl<T: LockKey + Copy + Send + Sync, const N: usize> Shelf<T, N>
where
    T: PartialEq,
{
    /// Constant of the block.
    const SIZE: usize = { N };
    const NONE: fn(usize) -> bool = |n| n == 0;

    fn new(id: u32, goods: [T; N]) -> Self {
        Self { id, goods }
    }

    /// Method that is generic over more than its block.
    async fn all<U>(&self) -> Result<(String, [U; N]), LockError>
    where
        U: From<T> + Send,
    {
        yield_now().await;
        Ok((name(), self.goods.map(U::from)))
    }

    #[etcd_locked("goods/<first>", "goods/<second>")]
    async fn swap(&mut self, (first, second): (T, T)) -> Result<String, AppError> {
        let _ = (first, second);
        self.goods.reverse();
        Ok(name())
    }

    #[etcd_locked("shelves/<id>")]
    async fn by_number(id: u32) -> Result<String, LockError> {
        Ok(name())
    }

    #[cfg(any())]
    fn left_out(&self) -> Nothing {}

    #[cfg(unix)]
    async fn chosen(self) -> Result<Goods<T, { 1 + 1 }>, LockError> {
        Ok([self.goods[0]; 2])
    }

    #[etcd_locked(detach)]
    async fn detached(self: Arc<Self>) -> Result<String, LockError>
    where
        T: 'static,
    {
        Ok(name())
    }

    #[etcd_locked(wait = "none")]
    async fn alone(&self) -> Result<(), LockError> {
        Ok(())
    }

    #[etcd_locked(shared)]
    async fn read(&self, together: &Barrier) -> Result<(), LockError> {
        together.wait().await;
        assert_matches!(self.alone().await, Err(LockError::SelfDeadlock { .. }));
        Ok(())
    }

    #[etcd_locked(unlocked)]
    async fn is_empty(&self) -> bool {
        assert!(current().is_none(), "a lock is held");
        yield_now().await;
        Self::SIZE == 0
    }
}

#[test]
fn a_block_with_all_that_may_stand_in_one() {
    alone(async {
        let mut shelf = Shelf::new(3, [1_u8, 2]);
        assert!(!shelf.is_empty().await);
        let together = Barrier::new(2);
        let (one, two) = tokio::join!(shelf.read(&together), shelf.read(&together));
        one.and(two).unwrap();
        shelf.alone().await.unwrap();
        let (seen, all) = shelf.all::<u64>().await.unwrap();
        assert_eq!((seen.as_str(), all), ("shelves/3", [1, 2]));
        assert_eq!(shelf.swap((1, 2)).await.unwrap(), "goods/1");
        let seen = Shelf::<u8, 2>::by_number(4).await.unwrap();
        assert_eq!(seen, "shelves/4");
        assert_eq!(shelf.chosen().await.unwrap(), [2, 2]);
        let shelf = Arc::new(Shelf::new(5, [1_u8]));
        assert_eq!(shelf.detached().await.unwrap(), "shelves/5");
    });
}

#[async_trait::async_trait]
trait Dynamic: Send + Sync {
    fn shard(&self) -> u32;
    async fn keep(&self, order: (u64, u8)) -> Result<String, AppError>;
    async fn longer<'a>(&mut self, one: &'a str) -> Result<&'a str, LockError>;

    #[etcd_locked("defaults/<id>")]
    async fn by_default(&self, id: u64) -> Result<String, LockError> {
        Ok(format!("{} {id}", name()))
    }
}

struct Branch {
    shard: u32,
}

#[async_trait::async_trait]
#[etcd_locked("dynamic/<self.shard>")]
impl Dynamic for Branch {
    #[etcd_locked(unlocked)]
    fn shard(&self) -> u32 {
        self.shard
    }

    #[etcd_locked("dynamic/<order.0>")]
    async fn keep(&self, order: (u64, u8)) -> Result<String, AppError> {
        if order.1 == 0 {
            return Ok(format!("{} early", name()));
        }
        yield_now().await;
        Ok(format!("{} of {}", name(), self.shard))
    }

    async fn longer<'a>(&mut self, one: &'a str) -> Result<&'a str, LockError> {
        self.shard += 1;
        Ok(one)
    }
}

struct Other {
    shard: u32,
}

#[etcd_locked("dynamic/<self.shard>")]
#[async_trait::async_trait]
impl Dynamic for Other {
    #[etcd_locked(unlocked)]
    fn shard(&self) -> u32 {
        self.shard
    }

    // The pattern is preserved here.
    #[etcd_locked("dynamic/<id>")]
    async fn keep(&self, (id, kind): (u64, u8)) -> Result<String, AppError> {
        yield_now().await;
        let when = if kind == 0 { "early".to_owned() } else { format!("of {}", self.shard) };
        Ok(format!("{} {when}", name()))
    }

    async fn longer<'a>(&mut self, one: &'a str) -> Result<&'a str, LockError> {
        self.shard += 1;
        Ok(one)
    }
}

#[test]
fn async_trait_above_and_below_the_attribute() {
    alone(async {
        let keepers: [Box<dyn Dynamic>; 2] =
            [Box::new(Branch { shard: 3 }), Box::new(Other { shard: 3 })];
        for mut keeper in keepers {
            assert_eq!(keeper.keep((7, 0)).await.unwrap(), "dynamic/7 early");
            assert_eq!(keeper.keep((7, 1)).await.unwrap(), "dynamic/7 of 3");
            assert_eq!(keeper.longer("one").await.unwrap(), "one");
            assert_eq!(keeper.shard(), 4);
            assert_eq!(keeper.by_default(8).await.unwrap(), "defaults/8 8");
        }
    });
}

macro_rules! block {
    ($vis:vis $method:ident, $body:block, $ty:ty, $other:item) => {
        #[etcd_locked("made/<self.shard>")]
        impl $ty {
            $vis async fn $method(&self) -> Result<(u32, String), LockError> $body

            $vis async fn by_the_macro(&self) -> Result<(u32, String), LockError> {
                Ok((self.shard, name()))
            }
        }

        #[etcd_locked("made/<self.shard>/other")]
        $other
    };
}

block!(
    pub(crate) by_the_caller,
    { Ok((3, name())) },
    Other,
    impl Other {
        async fn whole(&self) -> Result<(u32, String), LockError> {
            Ok((self.shard, name()))
        }
    }
);

#[test]
fn blocks_that_a_macro_writes() {
    alone(async {
        let other = Other { shard: 3 };
        let seen = (3, "made/3".to_owned());
        assert_eq!(other.by_the_caller().await.unwrap(), seen);
        assert_eq!(other.by_the_macro().await.unwrap(), seen);
        let whole = other.whole().await.unwrap();
        assert_eq!(whole, (3, "made/3/other".to_owned()));
    });
}
