//! Leftover keys: keys below the prefix, and session keys, that do not belong to a running process of etcd-locked.

use std::collections::BTreeSet;

use etcd_locked::etcd_client::{Client, GetOptions};
use etcd_locked_core::session_root;

use super::finding::Finding;
use crate::connection::{Connection, answer};
use crate::failure::Failure;

/// Number of leftovers of a kind that are named.
const NAMED: usize = 5;
/// Number of session keys per read.
const PAGE: i64 = 1_000;
/// Limit of the sessions that are kept apart, which bounds memory: a process has one session, or a few.
const SESSIONS: usize = 100_000;

/// Reads all names, and reports keys that etcd-locked would not leave.
pub(super) async fn leftovers(
    connection: &Connection<'_>,
    client: &mut Client,
) -> Result<Vec<Finding>, Failure> {
    let (mut names, mut contenders) = (0_u64, 0_u64);
    let [mut unleased, mut strange, mut strays] = <[Leftovers; 3]>::default();
    // Read before the names: a session that begins later is not counted as one without a contender.
    let mut sessions = match sessions(client, &session_root(&connection.prefix)).await {
        Ok(sessions) => Some(sessions),
        // The check of the rights reports this.
        Err(Failure::Denied(_)) => None,
        Err(failure) => return Err(failure),
    };
    let mut all = connection.locks.list("");
    loop {
        let next = answer(all.next()).await?;
        let read = all.strays();
        read.iter().for_each(|key| strays.add(|| key.shown_key()));
        let Some(queue) = next else { break };
        names += 1;
        for contender in queue.contenders() {
            contenders += 1;
            match contender.lease() {
                None => unleased.add(|| contender.shown_key()),
                Some(_) if contender.holder().is_none() => strange.add(|| contender.shown_key()),
                Some(lease) => _ = sessions.as_mut().map(|it| it.idle.remove(&lease)),
            }
        }
    }
    let what = format!("names: {names} locked, contenders (holders and waiters): {contenders}");
    let mut findings = vec![Finding::good("names.counted", what)];
    findings.extend(unleased.found(
        "key.unleased",
        "keys without a lease, whose names stay locked forever",
        "if you know that its owner is gone, delete each with `etcdctl del KEY`, one key per command",
    ));
    findings.extend(strays.found(
        "key.stray",
        "keys directly below the prefix, which lock no name",
        "it is not a lock of any process: find out who put it there, then delete it with `etcdctl del KEY`",
    ));
    findings.extend(strange.found(
        "contender.foreign",
        "contenders not of etcd-locked (Go's concurrency package, etcdctl lock, …)",
        "",
    ));
    if let Some(Sessions { many, idle, unleased }) = sessions {
        let idle = match idle.len() {
            0 => String::new(),
            idle => format!(
                ", {idle} of them without a holder or waiter (idle, or ended without a shutdown less than a TTL ago)"
            ),
        };
        findings.push(Finding::good("session.counted", format!("sessions: {many}{idle}")));
        findings.extend(unleased.found(
            "session.unleased",
            "session keys without a lease, which etcd-locked never puts",
            "delete each with `etcdctl del KEY`, one key per command",
        ));
    }
    Ok(findings)
}

#[derive(Debug, Default)]
struct Sessions {
    many: u64,
    /// Leases of sessions for which no contender has been read yet.
    idle: BTreeSet<i64>,
    unleased: Leftovers,
}

/// Reads the session keys, page by page.
async fn sessions(client: &Client, root: &str) -> Result<Sessions, Failure> {
    let mut found = Sessions::default();
    // The root ends with `/`, and `0` is the next character.
    let end = format!("{}0", root.trim_end_matches('/'));
    let mut next = Some(root.as_bytes().to_vec());
    while let Some(from) = next.take() {
        // With values, which are short: etcd 3.7 omits leases from reads of keys only (etcd#22209).
        let options = GetOptions::new().with_range(&*end).with_limit(PAGE);
        let mut kv = client.kv_client().max_decoding_message_size(usize::MAX);
        let page = answer(kv.get(from, Some(options))).await?;
        for kv in page.kvs() {
            let shown = || String::from_utf8_lossy(kv.key()).into_owned();
            let is_session = !kv.key()[root.len()..].contains(&b'/');
            found.many += u64::from(is_session);
            match kv.lease() {
                0 => found.unleased.add(shown),
                lease if is_session && found.idle.len() < SESSIONS => {
                    found.idle.insert(lease);
                }
                _ => {}
            }
        }
        let last = page.kvs().last().filter(|_| page.more());
        next = last.map(|last| [last.key(), &[0]].concat());
    }
    Ok(found)
}

/// Keys of one kind, of which a few are named.
#[derive(Debug, Default)]
struct Leftovers {
    many: u64,
    first: Vec<String>,
}

impl Leftovers {
    fn add(&mut self, shown: impl FnOnce() -> String) {
        self.many += 1;
        if self.first.len() < NAMED {
            self.first.push(shown());
        }
    }

    /// Returns a finding with their number and names; `None` if there are none. `mend` is empty if they may stay.
    fn found(&self, code: &'static str, what: &str, mend: &str) -> Option<Finding> {
        let more = if self.many > NAMED as u64 { ", …" } else { "" };
        let what = format!("{what}: {}: {}{more}", self.many, self.first.join(", "));
        (self.many > 0).then(|| match mend {
            "" => Finding::good(code, what),
            mend => Finding::bad(code, what, mend),
        })
    }
}
