use std::sync::mpsc::Sender;

use etcd_locked::{LockError, Locked, Name, etcd_locked, lock};

async fn charge(order: &Locked<Name>) {
    println!("{}", order.token());
}

#[etcd_locked("orders/<id>", proof = order)]
async fn returned(id: u64) -> Result<&'static Locked<Name>, LockError> {
    Ok(order)
}

#[etcd_locked("orders/<id>", proof = order)]
async fn sent(id: u64, seen: Sender<&'static Locked<Name>>) -> Result<(), LockError> {
    let _ = seen.send(order);
    Ok(())
}

#[etcd_locked("orders/<id>", proof = order)]
async fn stored<'a>(id: u64, seen: &mut Vec<&'a Locked<Name>>) -> Result<(), LockError> {
    seen.push(order);
    Ok(())
}

#[etcd_locked("orders/<id>", proof = order)]
async fn spawned(id: u64) -> Result<(), LockError> {
    tokio::spawn(charge(order));
    Ok(())
}

async fn by_hand() -> Result<(), LockError> {
    let held = lock("orders/7").await?;
    let order = held.locked();
    held.release().await?;
    println!("{}", order.token());
    Ok(())
}

fn main() {}
