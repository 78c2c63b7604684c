//! Alarms of an etcd that is at its quota: it refuses new locks, and processes that connect, until there is room and the alarm is
//! disarmed.
//!
//! ```sh
//! ETCD_LOCKED_ENDPOINTS=http://127.0.0.1:2379 cargo run -p etcd-locked-examples --bin alarms
//! ```

use std::error::Error;
use std::time::Duration;

use etcd_locked::etcd_client::{AlarmAction, AlarmOptions, AlarmType, Client, CompactionOptions};
use etcd_locked::{Config, LockError, Locks};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = Locks::connect(Config::from_env()?).await?;
    // The client has the endpoints, certificates and user of the locks, and connections of its own.
    let mut client = locks.client().await?;
    println!("connected; press Enter to take a lock");
    BufReader::new(stdin()).read_line(&mut String::new()).await?;
    match lock(&locks).await {
        Ok(()) => println!("a lock can be had: no alarm stands in its way"),
        Err(error) => {
            println!("no lock: {error}");
            // So this goes without one.
            disarm(&mut client).await?;
            lock(&locks).await?;
            println!("a lock can be had again");
        }
    }
    locks.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

async fn lock(locks: &Locks) -> Result<(), LockError> {
    locks.lock("cluster/alarms").await?.release().await
}

/// Frees what compaction and defragmentation give back, then disarms each alarm. It is raised again where that was not enough.
async fn disarm(client: &mut Client) -> Result<(), Box<dyn Error>> {
    let raised = client.alarm(AlarmAction::Get, AlarmType::None, None).await?;
    let answer = client.get("any key", None).await?;
    let revision = answer.header().ok_or("an answer without a header")?.revision();
    let physically = CompactionOptions::new().with_physical();
    match client.compact(revision, Some(physically)).await {
        Ok(_) => println!("compacted up to revision {revision}"),
        Err(error) => println!("not compacted: {error}"), // another operator was first
    }
    // Of the member that answers. In a cluster it is done at each endpoint, one after the other.
    client.defragment().await?;
    println!("defragmented");
    for alarm in raised.alarms() {
        let mut of = AlarmOptions::new();
        of.with_member(alarm.member_id());
        client.alarm(AlarmAction::Deactivate, alarm.alarm(), Some(of)).await?;
        println!("disarmed {:?} of member {:x}", alarm.alarm(), alarm.member_id());
    }
    Ok(())
}
