//! Clock check: does etcd's clock run as fast as this machine's? A holder stops by its own clock, before etcd's ends the lease.

use std::time::{Duration, Instant};

use etcd_locked::etcd_client::{Client, ResponseHeader};

use super::finding::Finding;
use super::probes::AGAIN;
use crate::connection::answer;
use crate::failure::Failure;

/// Length of the measurement, in seconds of etcd's clock.
const SECS: i64 = 3;
/// TTL of the lease that shows etcd's time, in seconds.
const TTL: i64 = 60;
/// Largest difference in rate between two clocks: holders rely on a lock for its TTL less this share (rule P28).
const DRIFT: f64 = 0.01;
/// Time between two reads.
const EVERY: Duration = Duration::from_millis(20);
/// Time after which the command gives up: etcd's clock is far too slow, or has stopped.
const PATIENCE: Duration = Duration::from_secs(6);

/// Measures how long a few seconds of etcd's clock take here. etcd shows the rest of a lease in whole seconds, rounded down.
pub(super) async fn clock(mut client: Client) -> Finding {
    match measure(&mut client).await {
        Ok((least, most)) => judge(least, most),
        Err(why) => {
            let what = format!("clock: the rate of etcd's is unknown: {why}");
            Finding::unseen("clock.unseen", what, AGAIN)
        }
    }
}

/// Returns the least and the greatest time that those seconds took here.
async fn measure(client: &mut Client) -> Result<(Duration, Duration), Failure> {
    let term = |header: Option<&ResponseHeader>| header.map(ResponseHeader::raft_term);
    let begun = Instant::now();
    let granted = answer(client.lease_grant(TTL, None)).await?;
    let (lease, leads) = (granted.id(), term(granted.header()));
    let here = async {
        // The leader counts from when it has the lease, which may be after this member's response.
        answer(client.lease_time_to_live(lease, None)).await?;
        let known = Instant::now();
        let mut least = Duration::ZERO;
        loop {
            let asked = Instant::now();
            let left = answer(client.lease_time_to_live(lease, None)).await?;
            if term(left.header()) != leads {
                // Another leader counts the time now.
                return Err(Failure::Etcd("etcd's leader changed".to_owned()));
            }
            if left.ttl() < TTL - SECS || least > PATIENCE {
                return Ok((least, begun.elapsed()));
            }
            // At that moment those seconds were not over.
            least = asked - known;
            tokio::time::sleep(EVERY).await;
        }
    }
    .await;
    // It would expire anyway.
    let _ = answer(client.lease_revoke(lease)).await;
    here
}

fn judge(least: Duration, most: Duration) -> Finding {
    let [shortest, longest] = [1.0 - DRIFT, 1.0 + DRIFT].map(|rate| SECS as f64 * rate);
    let (least, most) = (least.as_secs_f64(), most.as_secs_f64());
    let figures = format!("{SECS} s there were {least:.2} to {most:.2} s here");
    match least > longest || most < shortest {
        true => Finding::bad(
            "clock.differs",
            format!("clock: etcd's and this machine's run at different rates: {figures}"),
            "locks are safe only if clocks run at nearly the same rate: check the clocks of this host and of the leader's host",
        ),
        false => Finding::good(
            "clock.agrees",
            format!("clock: etcd's and this machine's run at the same rate: {figures}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_differ_only_beyond_what_was_measured() {
        for (least, most, agree) in [
            (2_980, 3_040, true),
            (2_700, 3_400, true),
            (3_060, 3_110, false),
            (2_900, 2_960, false),
        ] {
            let [least, most] = [least, most].map(Duration::from_millis);
            let found = judge(least, most);
            assert_eq!(found.is_bearable(), agree, "{found:?}");
        }
    }
}
