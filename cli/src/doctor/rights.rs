//! Rights of the user: which ranges of keys it may touch, of those that locks need.

use etcd_locked::etcd_client::{Client, Compare, CompareOp, GetOptions, Txn, TxnOp};
use etcd_locked_core::session_root;

use super::finding::Finding;
use crate::connection::answer;
use crate::failure::Failure;

/// Tries what a service does with its two ranges, without changing anything: etcd checks the rights of a transaction's branch that is
/// not taken. Tells too whether it may read the locks.
pub(super) async fn rights(client: &mut Client, prefix: &str) -> (Vec<Finding>, bool) {
    let mut findings = Vec::new();
    let mut reads = true;
    for (begins, what) in
        [(prefix.to_owned(), "the locks"), (session_root(prefix), "the session keys")]
    {
        let key = format!("{begins}doctor");
        // No key has a negative version.
        let never = Compare::version(&*key, CompareOp::Less, 0);
        let write = Txn::new().when([never]).and_then([TxnOp::put(&*key, "", None)]);
        let read = GetOptions::new().with_prefix().with_limit(1).with_keys_only();
        for (does, result) in [
            ("read", answer(client.get(&*begins, Some(read))).await.map(drop)),
            ("write", answer(client.txn(write)).await.map(drop)),
        ] {
            if begins == prefix && does == "read" {
                reads = !matches!(result, Err(Failure::Denied(_)));
            }
            findings.push(right(&begins, what, does, result));
        }
    }
    (findings, reads)
}

fn right(begins: &str, what: &str, does: &str, result: Result<(), Failure>) -> Finding {
    match result {
        Ok(()) => Finding::good("right.granted", format!("this user may {does} {what}, {begins}*")),
        Err(Failure::Denied(_)) => Finding::bad(
            "right.missing",
            format!("this user may not {does} {what}, {begins}*"),
            format!(
                "grant it to a role of the user: etcdctl role grant-permission ROLE readwrite --prefix=true {begins}"
            ),
        ),
        // An etcd at its quota refuses a write before it looks at rights.
        Err(Failure::Full(_)) => Finding::unseen(
            "right.unseen",
            format!("whether this user may {does} {what}, {begins}*, shows once etcd has room"),
            "",
        ),
        Err(failure) => Finding::bad(
            "right.unknown",
            format!("whether this user may {does} {what}, {begins}*, does not show: {failure}"),
            "run it once more; if that lasts, look at the members above",
        ),
    }
}
