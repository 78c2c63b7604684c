//! One client has A and wants B, another has B and wants A. The recipe names it as unsolved: both wait until somebody's patience
//! ends. Here one of the two is told, lets go of what it has, and tries again.
//!
//! (Where both names are known from the start there is no such thing: `#[etcd_locked("accounts/<from>", "accounts/<to>")]` takes
//! both or none.)

use etcd_locked::{LockError, Locks, etcd_locked};
use tokio::sync::Barrier;

use crate::{Result, client, end};

pub(crate) async fn show() -> Result<()> {
    let (a, b) = (client("a").await?, client("b").await?);
    // So that it is sure to happen.
    let both_have_one = Barrier::new(2);
    tokio::try_join!(
        transfer(&a, "a", ["A", "B"], &both_have_one),
        transfer(&b, "b", ["B", "A"], &both_have_one),
    )?;
    end([a, b]).await;
    Ok(())
}

/// Tries again, from the start, as long as that is what to do.
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
        println!("{who} is told: deadlock");
        println!("    {error}");
    }
    credited // through this body, which lets go of `from` with it
}

#[etcd_locked("zookeeper/accounts/<to>", locks = locks, wait = "30s")]
async fn credit(locks: &Locks, who: &str, from: &str, to: &str) -> Result<(), LockError> {
    println!("{who} has {from} and {to}: done");
    Ok(())
}
