//! Clock of etcd: whether it runs as fast as this machine's. A holder stops by its own clock, before etcd ends its lease by another.

use std::time::{Duration, Instant};

use etcd_locked::etcd_client::{Client, ResponseHeader};

use super::finding::Finding;
use super::probes::AGAIN;
use crate::connection::answer;
use crate::failure::Failure;

/// Seconds of etcd's for which it is followed.
const SECS: i64 = 3;
/// TTL of the lease that shows etcd's time, in seconds.
const TTL: i64 = 60;
/// By how much two clocks may differ in rate: locks are relied on for their TTL less this (rule P28).
const DRIFT: f64 = 0.01;
/// Time between two looks.
const EVERY: Duration = Duration::from_millis(20);
/// After so long here the command stops looking: etcd's clock is far too slow, or stands still.
const PATIENCE: Duration = Duration::from_secs(6);

/// Measures how long a few seconds of etcd's are here. etcd shows what is left of a lease in whole seconds, rounded down.
pub(super) async fn clock(mut client: Client) -> Finding {
    match measure(&mut client).await {
        Ok((least, most)) => judge(least, most),
        Err(why) => {
            let what = format!("clock: how fast etcd's runs did not show: {why}");
            Finding::unseen("clock.unseen", what, AGAIN)
        }
    }
}

/// Returns how long those seconds were here, at least and at most.
async fn measure(client: &mut Client) -> Result<(Duration, Duration), Failure> {
    let term = |header: Option<&ResponseHeader>| header.map(ResponseHeader::raft_term);
    let begun = Instant::now();
    let granted = answer(client.lease_grant(TTL, None)).await?;
    let (lease, leads) = (granted.id(), term(granted.header()));
    let here = async {
        // The leader counts from when it has the lease, which may be after this member's answer.
        answer(client.lease_time_to_live(lease, None)).await?;
        let known = Instant::now();
        let mut least = Duration::ZERO;
        loop {
            let asked = Instant::now();
            let left = answer(client.lease_time_to_live(lease, None)).await?;
            if term(left.header()) != leads {
                // Another one counts the time.
                return Err(Failure::Etcd("etcd's leader changed".to_owned()));
            }
            if left.ttl() < TTL - SECS || least > PATIENCE {
                return Ok((least, begun.elapsed()));
            }
            // By then those seconds were not over.
            least = asked - known;
            tokio::time::sleep(EVERY).await;
        }
    }
    .await;
    // etcd ends it anyhow.
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
            "locks are safe only while clocks run at nearly the same rate: look at the clock of this host, and of the leader's",
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
