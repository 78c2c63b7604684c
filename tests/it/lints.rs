//! Lints: none fires because of the attribute, and the user's own lints fire as they would without it.
//! The compiler decides both; the tests only use the functions, so that they are not dead code.
#![deny(warnings, clippy::all, clippy::pedantic, clippy::nursery)]
#![deny(
    keyword_idents,
    let_underscore,
    nonstandard_style,
    refining_impl_trait,
    rust_2018_idioms,
    unused
)]
#![deny(elided_lifetimes_in_paths, single_use_lifetimes, trivial_casts, trivial_numeric_casts)]
#![deny(unused_lifetimes, unused_qualifications, unused_results, variant_size_differences)]
#![deny(
    clippy::absolute_paths,
    clippy::arithmetic_side_effects,
    clippy::infinite_loop,
    clippy::let_underscore_must_use
)]
#![deny(
    clippy::let_underscore_untyped,
    clippy::panic,
    clippy::shadow_unrelated,
    clippy::unwrap_used
)]

use std::future::Future;
use std::result;
use std::sync::Arc;
use std::time::Duration;

use etcd_locked::{LockError, LockKey, Locks, etcd_locked, lock_names};
use tokio::task;

type Result<T = (), E = LockError> = result::Result<T, E>;

struct Shop {
    id: u64,
    locks: Locks,
}

impl From<LockError> for Refused {
    fn from(_: LockError) -> Self {
        Self
    }
}

struct Refused;

#[etcd_locked("orders/<id>")]
async fn bare(id: u64) -> Result<u64> {
    Ok(id)
}

#[etcd_locked("orders/<id>", wait = "5s", ttl = "30s", on_held = "error", map_err = Refused::from)]
async fn every_option(id: u64, locks: &Locks) -> Result<(), Refused> {
    forget(locks);
    Ok(())
}

#[etcd_locked("orders/<id>", "nightly", locks = locks, wait = limit, shared, guard = (order, _))]
async fn proven(id: u64, limit: Duration, locks: &Locks) -> Result<String> {
    Ok(order.name().to_string())
}

#[etcd_locked("orders/<id>", wait = limit, ttl = Duration::from_secs(5), at_most = limit, at_least = limit, permits = permits)]
async fn expressions(id: u64, limit: Duration, permits: u16) -> Result {
    forget(limit);
    Ok(())
}

#[etcd_locked("orders/<id>", locks = locks, crate = ::etcd_locked)]
async fn own_engine(id: &str, locks: &Locks) -> Result {
    Ok(())
}

#[etcd_locked("nightly", wait = "none", on_held = "skip")]
async fn no_value() {
    forget(1);
}

#[etcd_locked("nightly", wait = "forever", on_held = "skip")]
async fn optional(found: Option<&str>) -> Option<&str> {
    let found = found?;
    Some(found)
}

#[etcd_locked("nightly", on_error = |error| error.to_string())]
async fn any_value() -> String {
    String::new()
}

#[etcd_locked("nightly", on_held = "skip", on_error = |_| None)]
async fn skipped_or_converted(n: Option<u8>) -> Option<u8> {
    n
}

#[etcd_locked("nightly", on_held = "skip", map_err = |_| Refused)]
async fn skipped_or_mapped(n: Option<u8>) -> Result<Option<u8>, Refused> {
    Ok(n)
}

#[etcd_locked("orders/<id>")]
async fn early_return(id: u64) -> Result<Vec<u64>> {
    if id == 0 {
        return Ok(Vec::new());
    }
    let one = bare(id).await?;
    Ok(vec![one])
}

#[etcd_locked("orders/<id>")]
async fn never_returns(id: u64) -> Result<()> {
    loop {
        task::yield_now().await;
    }
}

#[etcd_locked("orders/<id>")]
async fn some_iterator(id: u64) -> Result<impl Iterator<Item = u64> + Send> {
    Ok(0..id)
}

#[etcd_locked("orders/<id>")]
async fn pattern((id, _): (u64, u64), mut rest: Vec<u64>) -> Result<Vec<u64>> {
    rest.push(1);
    Ok(rest)
}

impl Shop {
    #[etcd_locked("shops/<self.id>", locks = &self.locks)]
    async fn by_reference(&self) -> Result<&u64> {
        Ok(&self.id)
    }

    #[etcd_locked("shops/<self.id>")]
    async fn by_mutable_reference(&mut self, by: u64) -> Result<&mut u64> {
        self.id = self.id.saturating_add(by);
        Ok(&mut self.id)
    }

    #[etcd_locked("shops/<self.id>")]
    async fn shared(self: Arc<Self>) -> Result<u64> {
        Ok(self.id)
    }
}

#[etcd_locked("shops/<self.id>", wait = "5s")]
impl Shop {
    async fn counted(&self, by: u64) -> Result<u64> {
        let sum = self.id.saturating_add(by);
        Ok(sum)
    }

    #[etcd_locked("shops/<self.id>/<by>", shared)]
    async fn named(&self, by: u64) -> Result {
        forget(self.id);
        Ok(())
    }

    #[etcd_locked(unlocked)]
    const fn number(&self) -> u64 {
        self.id
    }
}

lock_names! {
    /// One order.
    Order = "lints/orders/<id: u64>";
    /// A stored item, by its name and its owner.
    #[derive(Clone, Copy)]
    Kept = "lints/kept/<owner: Customer>/<what: &str>";
    /// All of it.
    Everything = "lints/everything";
}

/// A number of a customer.
#[derive(Clone, Copy, LockKey)]
struct Customer(u64);

/// The state of an order.
#[derive(Clone, Copy, LockKey)]
enum State {
    New,
    Shipped,
}

#[etcd_locked(Order { id })]
async fn declared(id: u64) -> Result<u64> {
    Ok(id)
}

#[etcd_locked(Kept { owner, what }, on_held = "skip")]
async fn declared_and_borrowed(owner: Customer, what: &str) {
    forget(what);
}

#[etcd_locked(Everything)]
async fn declared_without_fields() -> Result {
    Ok(())
}

#[etcd_locked("lints/states/<state>")]
async fn derived_key(state: State) -> Result<bool> {
    Ok(matches!(state, State::New))
}

#[etcd_locked("lints/futures/<id>")]
fn returned(id: u64) -> impl Future<Output = Result<u64>> + Send {
    async move { Ok(id) }
}

#[async_trait::async_trait]
trait Keeper: Sync {
    #[etcd_locked("lints/keepers/<id>")]
    async fn keep(&self, id: u64) -> Result<u64> {
        Ok(id)
    }

    async fn count(&self, id: u64, by: u64) -> Result<u64>;
}

#[async_trait::async_trait]
impl Keeper for Customer {
    // Only the name uses the arguments.
    #[etcd_locked("lints/counts/<id>/<by>")]
    async fn count(&self, id: u64, by: u64) -> Result<u64> {
        Ok(self.0)
    }

    #[etcd_locked("lints/customers/<self.0>")]
    async fn keep(&self, id: u64) -> Result<u64> {
        if id == 0 {
            return Ok(self.0);
        }
        bare(id).await
    }
}

#[tracing::instrument(skip_all)]
#[etcd_locked("lints/traced/<id>")]
async fn traced(id: u64) -> Result<u64> {
    Ok(id)
}

#[etcd_locked("lints/traced/<id>")]
#[tracing::instrument]
async fn traced_inside(id: u64) -> Result<u64> {
    Ok(id)
}

const fn forget<T: Copy>(_: T) {}

#[tokio::test]
async fn no_lint_fires_because_of_the_attribute() {
    let locks = None::<Locks>; // without an engine the futures are made, but not polled
    drop((
        bare(1),
        no_value(),
        optional(None),
        any_value(),
        skipped_or_converted(None),
        skipped_or_mapped(None),
    ));
    drop((early_return(0), never_returns(1), some_iterator(2), pattern((1, 2), Vec::new())));
    drop((
        declared(1),
        declared_and_borrowed(Customer(1), "it"),
        declared_without_fields(),
        derived_key(State::New),
        derived_key(State::Shipped),
        returned(1),
        Customer(1).keep(2),
        Customer(1).count(2, 3),
        traced(1),
        traced_inside(1),
    ));
    if let Some(locks) = locks {
        drop((every_option(1, &locks), own_engine("1", &locks)));
        drop((expressions(1, Duration::MAX, 1), proven(1, Duration::MAX, &locks)));
        let mut shop = Shop { id: 1, locks };
        drop(shop.by_reference());
        drop(shop.by_mutable_reference(1));
        forget(shop.number());
        drop((shop.counted(1), shop.named(1)));
        drop(Arc::new(shop).shared());
    }
}

/// `#[expect]` is itself an error where the lint stays silent.
mod the_users_own_lints_still_fire {
    use super::{Result, etcd_locked};

    #[expect(dead_code)]
    #[etcd_locked("orders/<id>")]
    async fn never_called(id: u64) -> Result {
        Ok(())
    }

    #[etcd_locked("orders")]
    async fn argument(#[expect(unused_variables)] id: u64) -> Result {
        Ok(())
    }

    #[expect(unused_variables)]
    #[etcd_locked("orders")]
    async fn local() -> Result {
        let id = 1;
        Ok(())
    }

    #[expect(unused_must_use)]
    #[etcd_locked("orders")]
    async fn result() -> Result {
        "1".parse::<u8>();
        Ok(())
    }

    #[expect(unused_mut)]
    #[etcd_locked("orders/<id>")]
    async fn mutable(mut id: u64) -> Result<u64> {
        Ok(id)
    }

    #[expect(unreachable_code)]
    #[etcd_locked("orders")]
    async fn after_the_end() -> Result {
        return Ok(());
        Ok(())
    }

    #[expect(clippy::let_unit_value)]
    #[etcd_locked("orders")]
    async fn unit() -> Result {
        let () = super::forget(1);
        let unit = super::forget(1);
        super::forget(unit);
        Ok(())
    }

    #[must_use = "and the function's own attributes stay"]
    #[etcd_locked("orders")]
    async fn must_use() -> Result<u8> {
        Ok(1)
    }

    #[test]
    fn and_each_is_expected_above() {
        drop((argument(1), local(), result(), mutable(1), after_the_end(), unit(), must_use()));
    }
}
