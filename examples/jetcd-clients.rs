//! etcd client next to the locks: keys, leases, watches, members, status, and a write that etcd refuses after the lock is lost.
//!
//! ```sh
//! ETCD_LOCKED_ENDPOINTS=http://127.0.0.1:2379 cargo run -p etcd-locked-examples --bin jetcd-clients
//! ```

use std::error::Error;
use std::time::Duration;

use etcd_locked::etcd_client::{
    self, Client, DeleteOptions, GetOptions, PutOptions, Txn, TxnOp, WatchOptions,
};
use etcd_locked::{Config, LockGuard, Locks};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = Locks::connect(Config::from_env()?).await?;
    // The client uses the endpoints, certificates and user of the locks, but separate connections.
    let mut client = locks.client().await?;

    let below = WatchOptions::new().with_prefix();
    let mut watch = client.watch("jetcd/", Some(below)).await?;

    client.put("jetcd/greeting", "hello", None).await?;
    let answer = client.get("jetcd/greeting", None).await?;
    for kv in answer.kvs() {
        println!("KV: {} = {}", kv.key_str()?, kv.value_str()?);
    }

    let lease = client.lease_grant(60, None).await?.id();
    let leased = PutOptions::new().with_lease(lease);
    client.put("jetcd/session", "me", Some(leased)).await?;
    let left = client.lease_time_to_live(lease, None).await?;
    println!("Lease: granted for {} s", left.granted_ttl());
    client.lease_revoke(lease).await?;

    // Three events: two puts, and the deletion of the key whose lease was revoked.
    let mut seen = 0;
    while seen < 3
        && let Some(answer) = watch.message().await?
    {
        for event in answer.events() {
            let key = event.kv().map(|kv| kv.key_str()).transpose()?;
            println!("Watch: {:?} {}", event.event_type(), key.unwrap_or("?"));
            seen += 1;
        }
    }

    for member in client.member_list().await?.members() {
        println!("Cluster: {} at {:?}", member.name(), member.client_urls());
    }
    let status = client.status().await?;
    println!("Maintenance: etcd {}, {} bytes", status.version(), status.db_size());

    fenced(&locks, &mut client).await?;

    let below = DeleteOptions::new().with_prefix();
    client.delete("jetcd/", Some(below)).await?;
    locks.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

/// Writes with a fence, for data that a late write would harm: etcd compares in the transaction that writes.
async fn write(
    client: &mut Client,
    held: &LockGuard,
    value: &str,
) -> Result<bool, etcd_client::Error> {
    let put = TxnOp::put("jetcd/balance", value, None);
    let txn = Txn::new().when([held.fence().into()]).and_then([put]);
    Ok(client.txn(txn).await?.succeeded())
}

async fn fenced(locks: &Locks, client: &mut Client) -> Result<(), Box<dyn Error>> {
    let held = locks.lock("jetcd/ledger").await?;
    println!("fenced write under the lock: {}", outcome(write(client, &held, "100").await?));

    // An operator revokes the lease of the lock. A process that is paused for too long loses it in the same way.
    let below = GetOptions::new().with_prefix();
    let keys = client.get("locks/jetcd/ledger/", Some(below)).await?;
    for kv in keys.kvs() {
        client.lease_revoke(kv.lease()).await?;
    }
    println!("the lock is lost: {}", held.lost().await);
    println!("fenced write after that: {}", outcome(write(client, &held, "0").await?));
    for kv in client.get("jetcd/balance", None).await?.kvs() {
        println!("the balance is {}", kv.value_str()?);
    }
    Ok(())
}

fn outcome(written: bool) -> &'static str {
    if written { "done" } else { "refused by etcd" }
}
