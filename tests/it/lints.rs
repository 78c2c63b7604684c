//! Lints on annotated functions: none fires because of the attribute, and the user's own lints fire as they would without it.
//! The compiler and clippy decide both, so no test runs here.
#![deny(warnings, clippy::all, clippy::pedantic, clippy::nursery)]
#![deny(rust_2018_idioms, unused, elided_lifetimes_in_paths, single_use_lifetimes)]
#![deny(unused_lifetimes, unused_qualifications, unused_results, variant_size_differences)]
#![deny(
    clippy::absolute_paths,
    clippy::let_underscore_must_use,
    clippy::let_underscore_untyped,
    clippy::panic,
    clippy::shadow_unrelated,
    clippy::unwrap_used
)]
#![allow(dead_code)] // of what is only compiled; see `the_users_own_lints_still_fire`

use std::future::Future;
use std::result;
use std::sync::Arc;
use std::time::Duration;

use etcd_locked::{LockError, LockKey, Locks, etcd_locked, lock_names};

type Result<T = (), E = LockError> = result::Result<T, E>;

struct Shop {
    id: u64,
    locks: Locks,
}

struct Refused;

impl From<LockError> for Refused {
    fn from(_: LockError) -> Self {
        Self
    }
}

const fn forget<T: Copy>(_: T) {}

#[etcd_locked("orders/<id>", wait = "5s", ttl = "30s", on_held = "error", map_err = Refused::from)]
async fn literals(id: u64) -> Result<(), Refused> {
    Ok(())
}

#[etcd_locked("orders/<id>", "nightly", locks = locks, wait = limit, shared, proof = (order, _))]
async fn proven(id: u64, limit: Duration, locks: &Locks) -> Result<String> {
    Ok(order.name().to_string())
}

#[etcd_locked("orders/<id>", ttl = limit, max_hold = limit, min_hold = limit, permits = permits)]
async fn expressions(id: u64, limit: Duration, permits: u16) -> Result {
    forget(limit);
    Ok(())
}

#[etcd_locked("nightly", wait = "none", on_held = "skip")]
async fn no_value() {
    forget(1);
}

#[etcd_locked("nightly", on_held = "skip", on_error = |_| None)]
async fn skipped_or_converted(found: Option<&str>) -> Option<&str> {
    let found = found?;
    Some(found)
}

#[etcd_locked("orders/<id>")]
async fn early_return(id: u64) -> Result<Vec<u64>> {
    if id == 0 {
        return Ok(Vec::new());
    }
    let one = some_iterator(id).await?.next();
    Ok(one.into_iter().collect())
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

#[etcd_locked("shops/<self.id>", locks = &self.locks)]
impl Shop {
    async fn by_mutable_reference(&mut self, by: u64) -> Result<&mut u64> {
        self.id = self.id.saturating_add(by);
        Ok(&mut self.id)
    }

    #[etcd_locked("shops/<self.id>/<by>", shared)]
    async fn named(self: Arc<Self>, by: u64) -> Result {
        forget(self.id);
        Ok(())
    }

    #[etcd_locked(unlocked)]
    const fn number(&self) -> u64 {
        self.id
    }
}

lock_names! {
    /// Stored item, by its name and its owner.
    #[derive(Clone, Copy)]
    Kept = "lints/kept/<owner: Customer>/<what: &str>";
}

/// Number of a customer.
#[derive(Clone, Copy, LockKey)]
struct Customer(u64);

#[etcd_locked(Kept { owner, what }, on_held = "skip")]
async fn declared_and_borrowed(owner: Customer, what: &str) {
    forget(what);
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
}

#[async_trait::async_trait]
impl Keeper for Customer {
    #[etcd_locked("lints/customers/<self.0>/<id>")]
    async fn keep(&self, id: u64) -> Result<u64> {
        if id == 0 {
            return Ok(self.0);
        }
        traced(id).await
    }
}

#[tracing::instrument(skip_all)]
#[etcd_locked("lints/traced/<id>")]
async fn traced(id: u64) -> Result<u64> {
    Ok(id)
}

/// `#[expect]` is itself an error if the lint does not fire.
#[warn(dead_code)]
mod the_users_own_lints_still_fire {
    use super::{Result, etcd_locked};

    #[expect(dead_code)]
    #[etcd_locked("orders/<id>")]
    async fn never_called(id: u64) -> Result {
        Ok(())
    }

    #[allow(dead_code)]
    #[etcd_locked("orders")]
    async fn argument(#[expect(unused_variables)] id: u64) -> Result {
        Ok(())
    }

    #[allow(dead_code)]
    #[expect(unused_must_use, unused_variables, clippy::let_unit_value)]
    #[etcd_locked("orders")]
    async fn local() -> Result {
        let id = 1;
        "1".parse::<u8>();
        let unit = super::forget(1);
        super::forget(unit);
        Ok(())
    }

    #[allow(dead_code)]
    #[expect(unused_mut)]
    #[etcd_locked("orders/<id>")]
    async fn mutable(mut id: u64) -> Result<u64> {
        Ok(id)
    }

    #[allow(dead_code)]
    #[expect(unreachable_code)]
    #[etcd_locked("orders")]
    async fn after_the_end() -> Result {
        return Ok(());
        Ok(())
    }
}
