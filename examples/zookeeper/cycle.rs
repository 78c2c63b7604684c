//! Deadlock: one client has A and wants B, another has B and wants A. The recipe leaves that unsolved, so both wait until one
//! gives up. Here one of the two gets `Deadlock`, releases its lock, and tries again.
//!
//! If both names are known from the start there is no deadlock: `#[etcd_locked("accounts/<from>", "accounts/<to>")]` takes both
//! or none.

use etcd_locked::{LockError, Locks, etcd_locked};
use tokio::sync::Barrier;

use crate::{Result, client, end};

pub(crate) async fn show() -> Result<()> {
    let (a, b) = (client("a").await?, client("b").await?);
    // Both meet while each has one lock, so that the deadlock is certain.
    let both_have_one = Barrier::new(2);
    tokio::try_join!(
        transfer(&a, "a", ["A", "B"], &both_have_one),
        transfer(&b, "b", ["B", "A"], &both_have_one),
    )?;
    end([a, b]).await;
    Ok(())
}

/// Transfers, and tries again from the start after a `Deadlock`.
async fn transfer(
    locks: &Locks,
    who: &str,
    [from, to]: [&str; 2],
    meet: &Barrier,
) -> Result<(), LockError> {
    let mut meet = Some(meet);
    loop {
        match debit(locks, who, from, to, meet.take()).await {
            Err(LockError::Deadlock { .. }) => println!("{who} tries again"),
            outcome => return outcome,
        }
    }
}

#[etcd_locked("zookeeper/accounts/<from>", locks = locks, wait = "30s")]
async fn debit(
    locks: &Locks,
    who: &str,
    from: &str,
    to: &str,
    meet: Option<&Barrier>,
) -> Result<(), LockError> {
    println!("{who} has {from}, wants {to}");
    if let Some(meet) = meet {
        meet.wait().await;
    }
    let credited = credit(locks, who, from, to).await;
    if let Err(error @ LockError::Deadlock { .. }) = &credited {
        println!("{who} is refused: deadlock");
        println!("    {error}");
    }
    credited // the error ends this body, which releases `from`
}

#[etcd_locked("zookeeper/accounts/<to>", locks = locks, wait = "30s")]
async fn credit(locks: &Locks, who: &str, from: &str, to: &str) -> Result<(), LockError> {
    println!("{who} has {from} and {to}: done");
    Ok(())
}
