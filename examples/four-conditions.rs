//! Four conditions of a lock on a cluster of three: exclusion, safety, availability, symmetry. For availability the program asks
//! you to end the leading server.
//!
//! ```sh
//! export ETCD_LOCKED_ENDPOINTS=http://127.0.0.1:12379,http://127.0.0.1:22379,http://127.0.0.1:32379
//! cargo run -p etcd-locked-examples --bin four-conditions
//! ```

use std::env;
use std::error::Error;
use std::future::pending;
use std::time::{Duration, Instant};

use etcd_locked::etcd_client::{Client, DeleteOptions, GetOptions};
use etcd_locked::{Config, LockError, Locks, etcd_locked, lock_names};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::process::{Child, Command};
use tokio::time::sleep;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const COUNTER: &str = "conditions/counter";
const ROUNDS: usize = 20;

#[tokio::main]
async fn main() -> Result {
    let locks = Locks::connect(Config::from_env()?).await?;
    let part = env::args().nth(1);
    let part = locks.scope(async {
        match part.as_deref() {
            Some("rounds") => rounds(&locks).await,
            Some("hold") => Ok(hold_for_ever().await?),
            _ => show(&locks).await,
        }
    });
    part.await?;
    locks.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

async fn show(locks: &Locks) -> Result {
    exclusion(locks).await?;
    safety().await?;
    availability(locks).await?;
    symmetry(locks).await
}

/// Starts another process of this program.
fn process(part: &str) -> Result<Child> {
    let mut command = Command::new(env::current_exe()?);
    Ok(command.arg(part).kill_on_drop(true).spawn()?)
}

// Exclusion: only one of the processes that want the lock has it.

/// Reads, waits, writes: without the lock two processes would read the same count.
#[etcd_locked("conditions/exclusion", wait = "60s")]
async fn count_once(client: &mut Client) -> Result {
    let count = counter(client).await?;
    sleep(Duration::from_millis(5)).await;
    client.put(COUNTER, (count + 1).to_string(), None).await?;
    Ok(())
}

async fn counter(client: &mut Client) -> Result<usize> {
    let found = client.get(COUNTER, None).await?;
    let kv = found.kvs().first();
    Ok(kv.map_or(Ok(0), |kv| kv.value_str().unwrap_or("?").parse())?)
}

async fn rounds(locks: &Locks) -> Result {
    let mut client = locks.client().await?;
    for _ in 0..ROUNDS {
        count_once(&mut client).await?;
    }
    Ok(())
}

async fn exclusion(locks: &Locks) -> Result {
    let mut client = locks.client().await?;
    client.delete(COUNTER, None).await?;
    let mut others = [process("rounds")?, process("rounds")?];
    rounds(locks).await?;
    for other in &mut others {
        if !other.wait().await?.success() {
            return Err("a process has failed".into());
        }
    }
    let count = counter(&mut client).await?;
    println!("exclusion: three processes, {} rounds, {count} counted", 3 * ROUNDS);
    Ok(())
}

// Safety: a holder that crashes blocks others for at most its TTL.

#[etcd_locked("conditions/safety", ttl = "5s")]
async fn hold_for_ever() -> std::result::Result<(), LockError> {
    pending().await
}

#[etcd_locked("conditions/safety", wait = "none")]
async fn try_once() -> std::result::Result<(), LockError> {
    Ok(())
}

#[etcd_locked("conditions/safety", wait = "60s")]
async fn after_the_crash() -> std::result::Result<(), LockError> {
    Ok(())
}

async fn safety() -> Result {
    let mut holder = process("hold")?;
    let victim = loop {
        match try_once().await {
            Err(LockError::Held { holder: Some(victim), .. }) => break victim,
            other => other?,
        }
        if let Some(status) = holder.try_wait()? {
            return Err(format!("the process that is to hold the lock has ended: {status}").into());
        }
        sleep(Duration::from_millis(20)).await;
    };
    println!("safety: process {} has the lock", victim.pid());
    holder.kill().await?;
    let killed = Instant::now();
    after_the_crash().await?;
    let waited = killed.elapsed().as_secs_f64();
    println!("safety: it was killed, and {waited:.1} s later the lock was free");
    Ok(())
}

// Availability: a server dies, the others continue.

#[etcd_locked("conditions/availability", ttl = "10s")]
async fn without_the_leader(leader: &str) -> Result {
    println!("availability: {leader} leads; end that server, then press Enter");
    BufReader::new(stdin()).read_line(&mut String::new()).await?;
    // The remaining servers keep the lock. If it were lost, this body would not be polled again.
    sleep(Duration::from_secs(16)).await;
    println!("availability: the lock was kept for longer than its TTL");
    Ok(())
}

async fn availability(locks: &Locks) -> Result {
    let mut client = locks.client().await?;
    let status = client.status().await?;
    let members = client.member_list().await?;
    let leader = members.members().iter().find(|it| it.id() == status.leader());
    let urls = leader.map(|it| it.client_urls().join(",")).unwrap_or_default();
    without_the_leader(&urls).await?;

    rounds(locks).await?;
    println!("availability: {ROUNDS} rounds without it");
    Ok(())
}

// Symmetry: only the owner of a lock releases it.

lock_names! {
    Symmetry = "conditions/symmetry";
}

async fn symmetry(locks: &Locks) -> Result {
    let mut client = locks.client().await?;
    // An operator deletes the key of a holder, and another key of the same name is created before the holder knows.
    let late = locks.lock(Symmetry).await?;
    let was = keys(&mut client).await?;
    delete_keys(&mut client).await?;
    for (key, _) in &was {
        client.put(key.clone(), "", None).await?;
    }
    let is = keys(&mut client).await?;
    let _ = late.release().await; // an error, if the engine has noticed meanwhile
    if was != is && keys(&mut client).await? == is {
        println!(
            "symmetry: a late release, and a key of the same name, created later: it is still there"
        );
    }
    delete_keys(&mut client).await?;

    // As above, but another process owns the lock by now.
    let late = locks.lock(Symmetry).await?;
    delete_keys(&mut client).await?;
    let another = Locks::connect(Config::from_env()?).await?;
    let owner = another.lock(Symmetry).await?;
    let key = keys(&mut client).await?;

    let _ = late.release().await;
    match locks.lock(Symmetry).wait(Duration::from_secs(3)).await {
        Ok(_) => println!("symmetry: two have the lock"),
        Err(error) => println!("symmetry: {error}"),
    }
    let now = keys(&mut client).await?;
    if key.iter().all(|key| now.contains(key)) && owner.is_held() {
        println!("symmetry: a late release, and a waiter that goes away: its owner has it still");
    }
    owner.release().await?;
    let now = keys(&mut client).await?;
    if !key.iter().any(|key| now.contains(key)) {
        println!("symmetry: its owner has released it");
    }
    another.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

/// Deletes the keys of the name, as an operator may with `etcdctl del --prefix`.
async fn delete_keys(client: &mut Client) -> Result {
    let below = DeleteOptions::new().with_prefix();
    client.delete("locks/conditions/symmetry/", Some(below)).await?;
    Ok(())
}

/// Reads the keys of the name, each with its create revision.
async fn keys(client: &mut Client) -> Result<Vec<(Vec<u8>, i64)>> {
    let below = GetOptions::new().with_prefix();
    let found = client.get("locks/conditions/symmetry/", Some(below)).await?;
    let keys = found.kvs().iter();
    Ok(keys.map(|kv| (kv.key().to_vec(), kv.create_revision())).collect())
}
