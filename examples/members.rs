//! Members of the etcd cluster, changed under a lock: two operators never do it at the same time. A learner is added, shown and
//! removed.
//!
//! ```sh
//! ETCD_LOCKED_ENDPOINTS=http://127.0.0.1:2379 cargo run -p etcd-locked-examples --bin members -- http://127.0.0.1:12380
//! ```

use std::env;
use std::error::Error;
use std::time::Duration;

use etcd_locked::etcd_client::{Client, MemberAddOptions};
use etcd_locked::{Config, Locks, etcd_locked};

/// Of all that run this program, one is here. `at_most`, so that one who walks away does not keep the others waiting.
#[etcd_locked("cluster/members", locks = locks, wait = "1m", at_most = "5m")]
async fn try_out(locks: &Locks, peer: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
    // The client has the endpoints, certificates and user of the locks, and connections of its own.
    let mut client = locks.client().await?;
    list(&mut client).await?;

    // A learner has no vote: a wrong address does not cost the quorum.
    let learner = MemberAddOptions::new().with_is_learner();
    let added = client.member_add([peer], Some(learner)).await?;
    let id = added.member().ok_or("etcd names no member")?.id();
    println!("added {id:x}");
    list(&mut client).await?;

    // Here one would start it, wait until it has caught up, and call `member_promote`.
    client.member_remove(id).await?;
    println!("removed {id:x}");
    list(&mut client).await
}

async fn list(client: &mut Client) -> Result<(), Box<dyn Error + Send + Sync>> {
    for member in client.member_list().await?.members() {
        let name = match member.name() {
            "" => "not started",
            name => name,
        };
        let role = if member.is_learner() { "learner" } else { "voter" };
        println!("{:x}  {role}  {name}  {:?}", member.id(), member.peer_urls());
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let peer = env::args().nth(1).ok_or("say the new member's peer URL")?;
    let locks = Locks::connect(Config::from_env()?).await?;
    try_out(&locks, &peer).await?;
    locks.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
