//! Probes of etcd itself: alarms of its members, the time its writes take, and the user's rights.

use std::time::{Duration, Instant};

use etcd_locked::etcd_client::{
    AlarmAction, AlarmMember, AlarmType, Client, Compare, CompareOp, GetOptions, Txn, TxnOp,
};
use etcd_locked_core::session_root;

use super::finding::Finding;
use crate::connection::answer;
use crate::failure::Failure;

/// Longest acceptable time of a write; a longer one makes every lock slow.
const SLOW: Duration = Duration::from_millis(50);
/// Seconds until a lease expires that this process could not revoke.
const TTL: i64 = 10;

/// What to do if a check gives no result.
pub(super) const AGAIN: &str = "run this again; if it fails again, look at the members above";

pub(super) async fn alarms(client: &mut Client) -> Vec<Finding> {
    let asked = answer(client.alarm(AlarmAction::Get, AlarmType::None, None)).await;
    match asked {
        Err(Failure::Denied(_)) => vec![Finding::unseen(
            "alarm.hidden",
            "alarms: etcd shows them only to root",
            "to see them, run this again as a user with the role root",
        )],
        Err(failure) => {
            let what = format!("alarms: they cannot be read: {failure}");
            vec![Finding::bad("alarm.unread", what, AGAIN)]
        }
        Ok(alarms) if alarms.alarms().is_empty() => {
            vec![Finding::good("alarm.none", "alarms: none")]
        }
        Ok(alarms) => alarms.alarms().iter().map(alarm).collect(),
    }
}

/// Makes the finding for an alarm that a member has raised; `etcdctl member list` shows its id and address.
fn alarm(raised: &AlarmMember) -> Finding {
    let member = raised.member_id();
    match raised.alarm() {
        AlarmType::Nospace => Finding::bad(
            "alarm.nospace",
            format!(
                "alarms: NOSPACE of member {member:x}: etcd is at its quota, and grants no lock (held ones are still renewed and released)"
            ),
            "make room with `etcdctl compact REVISION` and `etcdctl defrag --cluster`, or restart the members with a larger \
             --quota-backend-bytes; then `etcdctl alarm disarm`",
        ),
        _ => Finding::bad(
            "alarm.corrupt",
            format!("alarms: CORRUPT of member {member:x}: its data differs from the others'"),
            "replace that member: `etcdctl member list` has its address",
        ),
    }
}

/// Grants leases and revokes them: etcd writes both to its log, and a majority has them on disk before it responds. Nothing is left.
/// A read would not wait for a disk.
pub(super) async fn writes(client: &mut Client, probes: u32) -> Finding {
    let mut took = Vec::new();
    for _ in 0..probes {
        match probe(client, &mut took).await {
            Ok(()) => {}
            Err(Failure::Full(_)) => {
                let what = "writes: cannot be timed until etcd has room";
                return Finding::unseen("write.unseen", what, "");
            }
            Err(failure) => {
                let what = format!("writes: one failed: {failure}");
                let mend = "no lock is granted until writes work again: look at the members above";
                return Finding::bad("write.failed", what, mend);
            }
        }
    }
    took.sort_unstable();
    let at = |share: usize| took[(took.len() - 1) * share / 100].as_secs_f64() * 1e3;
    let (many, half, most) = (took.len(), at(50), at(99));
    let figures = format!("half of {many} took {half:.1} ms at most, 99 % of them {most:.1} ms");
    match took[took.len() / 2] > SLOW {
        true => Finding::bad(
            "write.slow",
            format!("writes: slow: {figures}"),
            "each lock takes at least two of these: check the members' disks and network",
        ),
        false => Finding::good("write.fast", format!("writes: fast enough: {figures}")),
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

/// Tries the operations of a service on its two ranges, without changing anything: etcd also checks the rights for the branch of a
/// transaction that is not taken.
pub(super) async fn rights(client: &mut Client, prefix: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (begins, what) in [(prefix.to_owned(), "locks"), (session_root(prefix), "session keys")] {
        let key = format!("{begins}doctor");
        // No key has a negative version.
        let never = Compare::version(&*key, CompareOp::Less, 0);
        let write = Txn::new().when([never]).and_then([TxnOp::put(&*key, "", None)]);
        let read = GetOptions::new().with_prefix().with_limit(1).with_keys_only();
        for (does, result) in [
            ("read", answer(client.get(&*begins, Some(read))).await.map(drop)),
            ("write", answer(client.txn(write)).await.map(drop)),
        ] {
            let what = format!("{does} {what}, which begin with `{begins}`");
            findings.push(right(&begins, &what, result));
        }
    }
    findings
}

fn right(begins: &str, what: &str, result: Result<(), Failure>) -> Finding {
    match result {
        Ok(()) => Finding::good("right.granted", format!("rights: this user may {what}")),
        Err(Failure::Denied(_)) => Finding::bad(
            "right.missing",
            format!("rights: this user may not {what}"),
            &format!(
                "grant it to a role of the user: etcdctl role grant-permission ROLE readwrite --prefix=true {begins}"
            ),
        ),
        // An etcd at its quota refuses a write before it checks rights.
        Err(Failure::Full(_)) => {
            let what = format!("rights: unknown until etcd has room whether this user may {what}");
            Finding::unseen("right.unseen", what, "")
        }
        Err(failure) => {
            let what = format!("rights: unknown whether this user may {what}: {failure}");
            Finding::bad("right.unknown", what, AGAIN)
        }
    }
}
