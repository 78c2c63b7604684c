//! Writes of etcd: how long one takes, which a majority has on disk before it is answered.

use std::time::{Duration, Instant};

use etcd_locked::etcd_client::Client;

use super::finding::Finding;
use crate::connection::answer;
use crate::failure::Failure;

/// A write that takes longer makes every lock slow.
const SLOW: Duration = Duration::from_millis(50);
/// Seconds until etcd ends a lease that this process could not revoke.
const TTL: i64 = 10;

/// Grants leases and revokes them: etcd writes these to its log, and nothing is left. A read would be answered without the disk.
pub(super) async fn writes(client: &mut Client, probes: u32) -> Finding {
    let mut took = Vec::new();
    for _ in 0..probes {
        if let Err(failure) = probe(client, &mut took).await {
            return match failure {
                Failure::Full(_) => Finding::unseen(
                    "write.unseen",
                    "how long a write takes shows once etcd has room",
                    "",
                ),
                failure => Finding::bad(
                    "write.failed",
                    format!("a write failed: {failure}"),
                    "no lock is granted while that lasts: look at the members above",
                ),
            };
        }
    }
    took.sort_unstable();
    let at = |share: usize| took[(took.len() - 1) * share / 100].as_secs_f64() * 1e3;
    let (many, half, most) = (took.len(), at(50), at(99));
    let what = format!("{many} writes confirmed by a quorum: p50 {half:.1} ms, p99 {most:.1} ms");
    match took[took.len() / 2] > SLOW {
        true => Finding::bad(
            "write.slow",
            what,
            "each lock takes at least two of these: look at disks and network of the members",
        ),
        false => Finding::good("write.fast", what),
    }
}

async fn probe(client: &mut Client, took: &mut Vec<Duration>) -> Result<(), Failure> {
    let begun = Instant::now();
    let lease = answer(client.lease_grant(TTL, None)).await?.id();
    took.push(begun.elapsed());
    let begun = Instant::now();
    answer(client.lease_revoke(lease)).await?;
    took.push(begun.elapsed());
    Ok(())
}
