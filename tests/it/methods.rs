//! Annotated `impl` blocks: every method with a receiver runs under the lock of its block, unless it says `unlocked`.

use std::sync::Arc;

use etcd_locked::{LockError, LockKey, Locks, current, etcd_locked};
use tokio::sync::{Barrier, oneshot};
use tokio::task::yield_now;

use crate::corner::Corner;
use crate::limit::{self, within};
use crate::under::{AppError, alone, name};

/// An account in a corner, as one process sees it.
struct Account {
    id: u64,
    locks: Locks,
}

#[etcd_locked("accounts/<self.id>", locks = &self.locks, wait = "forever")]
impl Account {
    #[etcd_locked(wait = "none")]
    async fn close(&self) -> Result<(), LockError> {
        Ok(())
    }

    #[etcd_locked(shared)]
    async fn read(&self, together: &Barrier) -> Result<(), LockError> {
        together.wait().await;
        Ok(())
    }

    #[etcd_locked(shared)]
    async fn read_until(&self, left: oneshot::Receiver<()>) -> Result<(), LockError> {
        let _ = left.await;
        Ok(())
    }

    #[etcd_locked("accounts/<self.id>/audit")]
    async fn audit(&self) -> Result<String, LockError> {
        Ok(name())
    }

    #[etcd_locked(unlocked)]
    async fn id(&self) -> u64 {
        assert!(current().is_none(), "a lock is held");
        yield_now().await;
        self.id
    }
}

#[limit::test]
async fn shared_methods_of_a_block_run_together_only() {
    let (corner, [locks]) = Corner::with_engines().await;
    let account = Account { id: 7, locks };
    let together = Barrier::new(2);
    let both = async { tokio::join!(account.read(&together), account.read(&together)) };
    let (one, two) = within("two readers inside", both).await;
    one.and(two).unwrap();

    let (leave, left) = oneshot::channel();
    let writer = async {
        corner.until_contenders("accounts/7", 1).await;
        let refused = account.close().await;
        assert_matches!(refused, Err(LockError::Held { .. }));
        leave.send(()).unwrap();
    };
    let (read, ()) =
        within("the reader", async { tokio::join!(account.read_until(left), writer) }).await;
    read.unwrap();
    within("the writer", account.close()).await.unwrap();
    corner.until_empty().await;
}

#[limit::test]
async fn an_unlocked_method_takes_nothing() {
    let (corner, [locks]) = Corner::with_engines().await;
    let account = Account { id: 7, locks };
    let held = account.locks.lock("accounts/7").await.unwrap();
    assert_eq!(within("no lock", account.id()).await, 7);
    assert_eq!(corner.contenders("accounts/7").await.len(), 1);
    let audited = within("a lock of its own", account.audit()).await;
    assert_eq!(audited.unwrap(), "accounts/7/audit");
    held.release().await.unwrap();
    corner.until_empty().await;
}

struct Shelf<T, const N: usize> {
    id: u32,
    goods: [T; N],
}

type Goods<T, const N: usize> = [T; N];

/// A block with all that may stand in one.
#[etcd_locked("shelves/<self.id>", wait = "5s")]
#[allow(dead_code)]
impl<T: LockKey + Copy + Send + Sync, const N: usize> Shelf<T, N>
where
    T: PartialEq,
{
    /// A constant.
    const SIZE: usize = { N };
    const NONE: fn(usize) -> bool = |n| n == 0;

    fn new(id: u32, goods: [T; N]) -> Self {
        Self { id, goods }
    }

    /// Generic over more than its block.
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

    #[etcd_locked(unlocked)]
    const fn is_empty(&self) -> bool {
        Self::SIZE == 0
    }
}

#[test]
fn a_block_with_all_that_may_stand_in_one() {
    alone(async {
        let mut shelf = Shelf::new(3, [1_u8, 2]);
        assert!(!shelf.is_empty());
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

struct Shop {
    shard: u32,
}

trait Keeper {
    type Kept;
    const SHARD: u32;

    fn shard(&self) -> u32;
    async fn keep(&self, id: u64) -> Result<Self::Kept, AppError>;
    fn count(&mut self) -> impl Future<Output = Result<String, LockError>> + Send;
}

#[etcd_locked("shops/<self.shard>")]
impl Keeper for Shop {
    type Kept = String;
    const SHARD: u32 = 3;

    #[etcd_locked(unlocked)]
    fn shard(&self) -> u32 {
        self.shard
    }

    #[etcd_locked("shops/<self.shard>/orders/<id>")]
    async fn keep(&self, id: u64) -> Result<String, AppError> {
        Ok(name())
    }

    async fn count(&mut self) -> Result<String, LockError> {
        self.shard += 1;
        Ok(name())
    }
}

#[test]
fn a_block_of_a_trait() {
    alone(async {
        let mut shop = Shop { shard: Shop::SHARD };
        assert_eq!(shop.keep(7).await.unwrap(), "shops/3/orders/7");
        assert_eq!(shop.count().await.unwrap(), "shops/3");
        assert_eq!(shop.shard(), 4);
    });
}

#[async_trait::async_trait]
trait Dynamic: Send + Sync {
    fn shard(&self) -> u32;
    async fn keep(&self, order: (u64, u8)) -> Result<String, AppError>;
    async fn longer<'a>(&mut self, one: &'a str) -> Result<&'a str, LockError>;
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
        assert_eq!(name(), format!("dynamic/{}", self.shard));
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

    // Here the pattern is still one.
    #[etcd_locked("dynamic/<id>")]
    async fn keep(&self, (id, kind): (u64, u8)) -> Result<String, AppError> {
        if kind == 0 {
            return Ok(format!("{} early", name()));
        }
        yield_now().await;
        Ok(format!("{} of {}", name(), self.shard))
    }

    async fn longer<'a>(&mut self, one: &'a str) -> Result<&'a str, LockError> {
        assert_eq!(name(), format!("dynamic/{}", self.shard));
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
