//! Annotated functions of every kind, as a person writes them in an editor.
//!
//! `cargo xtask editor` opens this file in rust-analyzer. Where it says `// typing:`, the command types half a statement
//! about what follows. It compares with the bare file, which has no attributes; there the lines after `// bare:` are code.

use std::fmt::Display;

use async_trait::async_trait;
use etcd_locked::{Exclusive, LockError, LockKey, Locked, Name, Permit, etcd_locked, lock_names};

lock_names! {
    pub Order = "orders/<id: u64>";
}

/// What is sent to a customer.
#[derive(Clone)]
pub struct Parcel {
    pub id: u64,
    pub sku: String,
}

impl Parcel {
    pub fn weight(&self) -> u64 {
        self.id + 1
    }
}

/// Error of the shop.
pub struct Refused(String);

impl From<LockError> for Refused {
    fn from(error: LockError) -> Self {
        Self(error.to_string())
    }
}

impl Refused {
    pub fn reason(&self) -> &str {
        &self.0
    }
}

/// What the bare file has in the place of a proof.
pub fn given<T>() -> T {
    panic!("this crate is read by an editor, and never run")
}

#[etcd_locked("orders/<id>")]
pub async fn template(id: u64, order: Parcel) -> Result<u64, Refused> {
    let weight = order.weight();
    // typing: order
    let sum = weight + id;
    Ok(sum)
}

#[etcd_locked(Order { id })]
pub async fn declared(id: u64, order: Parcel) -> Result<u64, LockError> {
    let weight = order.weight();
    Ok(weight + id)
    // typing: order
}

#[etcd_locked("accounts/<from>", "accounts/<to>")]
pub async fn several(from: u64, to: u64, order: &Parcel) -> Result<String, LockError> {
    let sku = order.sku.clone();
    // typing: order
    Ok(format!("{sku}: {from} to {to}"))
}

#[etcd_locked("orders/<order.id>", shared)]
pub async fn reader(order: &Parcel) -> Result<u64, LockError> {
    let twice = order.weight() * 2;
    // typing: order
    if twice > 9 {
        return Ok(9);
    }
    Ok(twice)
}

#[etcd_locked("belts/<belt>", permits = 3, wait = "5s")]
pub async fn permit(belt: &str, order: Parcel) -> Result<usize, LockError> {
    // typing: order
    if order.weight() > 5 {
        return Ok(0);
    }
    Ok(belt.len())
}

#[etcd_locked("orders/<id>", guard = held)]
pub async fn proof(id: u64, order: Parcel) -> Result<u64, LockError> {
    // bare: let held = &given::<Locked<Name, Exclusive>>();
    let token = helper(held).await;
    // typing: held
    let sum = token + order.weight() + id;
    Ok(sum)
}

#[etcd_locked("belts/<belt>", Order { id }, guard = (_, second), permits = 2)]
pub async fn proofs(belt: u8, id: u64, order: Parcel) -> Result<u64, LockError> {
    // bare: let second = &given::<Locked<Order, Permit>>();
    let number = second.name().id + u64::from(belt) + id;
    // typing: second
    Ok(number + order.weight())
}

/// A function that can only be called under the lock.
async fn helper(held: &Locked<Name, Exclusive>) -> u64 {
    held.token().revision().unsigned_abs()
}

/// A function that can only be called with a permit.
pub fn permitted(held: &Locked<Order, Permit>) -> u64 {
    held.name().id
}

#[etcd_locked("keys/<key>")]
pub async fn generic<K: LockKey + Send, T>(key: K, values: Vec<T>) -> Result<Option<T>, LockError>
where
    T: Clone + Send,
{
    drop(key);
    let first = values.first().cloned();
    // typing: values
    Ok(first)
}

#[etcd_locked("keys/<key>/<kind>", on_held = "skip")]
pub async fn opaque(key: impl LockKey, kind: u8, shown: impl Display + Send) -> Option<String> {
    drop(key);
    let text = format!("{shown} of {kind}");
    // typing: text
    Some(text)
}

#[etcd_locked("orders/<id>/<first>")]
pub async fn patterns(
    Parcel { id, sku }: Parcel,
    (first, mut rest): (u8, Vec<u8>),
) -> Result<usize, Refused> {
    rest.push(first);
    let sum = rest.len() + sku.len();
    // typing: rest
    Ok(sum + id as usize)
}

#[etcd_locked("orders/<order.id>", when = order.weight() > 2, map_err = |error| Refused(format!("{error}")))]
pub async fn conditional(order: &Parcel) -> Result<&str, Refused> {
    let sku = order.sku.as_str();
    // typing: order
    Ok(sku)
}

#[etcd_locked("orders/<id>", on_error = |_| 0, at_most = "5s", release = "background")]
pub async fn converted(id: u64, order: Parcel) -> u64 {
    // typing: order
    let sum = order.weight() + id;
    sum
}

#[etcd_locked("orders/<id>", detach)]
pub async fn detached(id: u64, order: Parcel) -> Result<u64, LockError> {
    let weight = order.weight();
    // typing: order
    Ok(weight + id)
}

#[etcd_locked("orders/<id>")]
pub fn returned(id: u64, order: Parcel) -> impl Future<Output = Result<u64, LockError>> {
    async move {
        let weight = order.weight();
        // typing: order
        Ok(weight + id)
    }
}

/// A shop with a lock of its own.
pub struct Shop {
    pub id: u64,
    pub parcels: Vec<Parcel>,
}

#[etcd_locked("shops/<self.id>", wait = "5s")]
impl Shop {
    pub async fn first(&self) -> Result<Option<&Parcel>, LockError> {
        let first = self.parcels.first();
        // typing: self
        Ok(first)
    }

    #[etcd_locked(shared)]
    pub async fn weight(&self, order: Parcel) -> Result<u64, LockError> {
        let own = self.parcels.iter().map(Parcel::weight).sum::<u64>();
        // typing: order
        Ok(own + order.weight())
    }

    #[etcd_locked("shops/<self.id>/parcels/<order.id>")]
    pub async fn add(&mut self, order: Parcel) -> Result<usize, Refused> {
        self.parcels.push(order);
        // typing: self
        Ok(self.parcels.len())
    }

    #[etcd_locked(unlocked)]
    pub fn size(&self) -> usize {
        // typing: self
        self.parcels.len()
    }
}

/// What every stock can do.
pub trait Stock {
    fn count(&self, id: u64) -> impl Future<Output = Result<u64, Refused>>;

    fn remove(&mut self, order: Parcel) -> impl Future<Output = Result<u64, Refused>>;
}

impl Stock for Shop {
    #[etcd_locked("stock/<id>")]
    async fn count(&self, id: u64) -> Result<u64, Refused> {
        let same = |parcel: &&Parcel| parcel.id == id;
        // typing: self
        Ok(self.parcels.iter().filter(same).count() as u64)
    }

    #[etcd_locked("stock/<self.id>/<order.sku>")]
    async fn remove(&mut self, order: Parcel) -> Result<u64, Refused> {
        self.parcels.retain(|parcel| parcel.id != order.id);
        // typing: order
        let left = self.count(order.id).await?;
        Ok(left)
    }
}

/// What every ledger can do, behind a pointer.
#[async_trait]
pub trait Ledger {
    async fn book(&self, order: Parcel) -> Result<u64, LockError>;
}

#[async_trait]
impl Ledger for Shop {
    #[etcd_locked("ledgers/<order.id>")]
    async fn book(&self, order: Parcel) -> Result<u64, LockError> {
        let weight = order.weight();
        // typing: order
        Ok(weight + self.id)
    }
}
