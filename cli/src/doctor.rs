//! `doctor`: what is wrong with etcd, with rights, and with what lies below the prefix, and what to do.

use std::fmt;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use etcd_locked::etcd_client::{
    AlarmAction, AlarmType, Client, Compare, CompareOp, Error, GetOptions, StatusResponse, Txn,
    TxnOp,
};
use etcd_locked::{Contender, etcd_bug};
use etcd_locked_core::session_root;
use serde_json::json;

use crate::connection::{Connection, answer};
use crate::failure::Failure;
use crate::options::Doctor;

/// How far a member's log may be behind another's.
const LAG: u64 = 1_000;
/// A read that takes longer makes every lock slow.
const SLOW: Duration = Duration::from_millis(50);
/// How many leftovers are named.
const NAMED: usize = 5;

/// What was found.
#[derive(Debug)]
struct Finding {
    /// It is to be mended.
    bad: bool,
    what: String,
    /// What to do about it; empty, if nothing.
    mend: String,
}

impl Finding {
    fn good(what: impl fmt::Display) -> Self {
        Self {
            bad: false,
            what: what.to_string(),
            mend: String::new(),
        }
    }

    fn bad(what: impl fmt::Display, mend: impl fmt::Display) -> Self {
        Self {
            bad: true,
            what: what.to_string(),
            mend: mend.to_string(),
        }
    }
}

pub(crate) async fn doctor(
    connection: &Connection<'_>,
    options: &Doctor,
    json: bool,
) -> Result<bool, Failure> {
    let mut well = true;
    let mut tell = |findings: Vec<Finding>| -> io::Result<()> {
        for Finding { bad, what, mend } in findings {
            well &= !bad;
            let mut out = io::stdout();
            if json {
                writeln!(out, "{}", json!({ "ok": !bad, "what": what, "mend": mend }))?;
                continue;
            }
            writeln!(out, "{} {what}", if bad { "BAD" } else { "ok " })?;
            if !mend.is_empty() {
                writeln!(out, "    {mend}")?;
            }
        }
        Ok(())
    };
    let (findings, reached) = members(connection).await?;
    tell(findings)?;
    if !reached {
        return Err(Failure::Etcd("no endpoint of etcd answers".to_owned()));
    }
    let mut client = connection.client().await?;
    tell(alarms(&mut client).await)?;
    tell(latency(&mut client, &connection.prefix, options.probes).await)?;
    tell(rights(&mut client, &connection.prefix).await)?;
    tell(leftovers(connection).await?)?;
    Ok(well)
}

/// Asks each endpoint for itself; tells whether any answered.
async fn members(connection: &Connection<'_>) -> Result<(Vec<Finding>, bool), Failure> {
    let mut findings = Vec::new();
    let mut statuses: Vec<(String, StatusResponse)> = Vec::new();
    for (endpoint, locks) in connection.each()? {
        let status = async {
            let mut client = locks.client().await?;
            answer(client.status()).await
        };
        match status.await {
            Ok(status) => statuses.push((endpoint, status)),
            Err(failure) => findings.push(Finding::bad(
                format!("{endpoint}: {failure}"),
                "the others serve as long as most members do; mend or replace this one",
            )),
        }
    }
    let newest = statuses
        .iter()
        .map(|(_, status)| status.raft_index())
        .max()
        .unwrap_or_default();
    for (endpoint, status) in &statuses {
        findings.push(member(endpoint, status, newest));
        findings.extend(version(endpoint, status.version()));
    }
    let leaders: Vec<u64> = statuses.iter().map(|(_, status)| status.leader()).collect();
    if leaders.iter().any(|leader| *leader != leaders[0]) {
        findings.push(Finding::bad(
            "the members do not agree on their leader",
            "wait for the election; if it lasts, look at the network between the members",
        ));
    }
    Ok((findings, !statuses.is_empty()))
}

fn member(endpoint: &str, status: &StatusResponse, newest: u64) -> Finding {
    let (version, behind) = (status.version(), newest.saturating_sub(status.raft_index()));
    if status.leader() == 0 {
        return Finding::bad(
            format!("{endpoint}: etcd {version}, without a leader"),
            "no lock can be taken or renewed there: bring back most of the members, or the network between them",
        );
    }
    if behind > LAG {
        return Finding::bad(
            format!("{endpoint}: etcd {version}, {behind} log entries behind"),
            "its disk or its network is slow; locks asked for there wait for it",
        );
    }
    let size = status.db_size() as f64 / f64::from(1 << 20);
    Finding::good(format!("{endpoint}: etcd {version}, {size:.1} MiB"))
}

/// What is known against a version.
fn version(endpoint: &str, version: &str) -> Option<Finding> {
    let bug = etcd_bug(version)?;
    Some(Finding::bad(
        format!("{endpoint}: etcd {version}: {bug}"),
        "upgrade to 3.5.28, 3.6.9 or later",
    ))
}

async fn alarms(client: &mut Client) -> Vec<Finding> {
    let asked = answer(client.alarm(AlarmAction::Get, AlarmType::None, None)).await;
    match asked {
        Err(failure) => vec![Finding::bad(format!("alarms cannot be read: {failure}"), "")],
        Ok(alarms) if alarms.alarms().is_empty() => vec![Finding::good("no alarm")],
        Ok(alarms) => alarms
            .alarms()
            .iter()
            .map(|alarm| match alarm.alarm() {
                AlarmType::Nospace => Finding::bad(
                    "alarm: etcd is at its quota, and takes no lock (those held are renewed and released)",
                    "compact and defragment, raise --quota-backend-bytes, then `etcdctl alarm disarm`",
                ),
                _ => Finding::bad("alarm: a member's data is corrupt", "replace that member"),
            })
            .collect(),
    }
}

/// Times reads that a quorum confirms.
async fn latency(client: &mut Client, prefix: &str, probes: u32) -> Vec<Finding> {
    let mut took = Vec::new();
    for _ in 0..probes {
        let begun = Instant::now();
        let options = GetOptions::new()
            .with_prefix()
            .with_limit(1)
            .with_keys_only();
        if let Err(failure) = answer(client.get(prefix, Some(options))).await {
            return vec![Finding::bad(format!("a read failed: {failure}"), "")];
        }
        took.push(begun.elapsed());
    }
    took.sort_unstable();
    let at = |share: usize| took[(took.len() - 1) * share / 100].as_secs_f64() * 1e3;
    let (half, most) = (at(50), at(99));
    let what = format!("{probes} reads confirmed by a quorum: p50 {half:.1} ms, p99 {most:.1} ms");
    match took[took.len() / 2] > SLOW {
        true => vec![Finding::bad(
            what,
            "each lock takes at least two of these: look at disks and network of the members",
        )],
        false => vec![Finding::good(what)],
    }
}

/// Tries what a service does with its two ranges, without changing anything: etcd checks the rights of a transaction's branch that is
/// not taken.
async fn rights(client: &mut Client, prefix: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (begins, what) in [
        (prefix.to_owned(), "the locks"),
        (session_root(prefix), "the session keys"),
    ] {
        let key = format!("{begins}doctor");
        // No key has a negative version.
        let never = Compare::version(&*key, CompareOp::Less, 0);
        let write = Txn::new()
            .when([never])
            .and_then([TxnOp::put(&*key, "", None)]);
        let read = GetOptions::new()
            .with_prefix()
            .with_limit(1)
            .with_keys_only();
        for (does, result) in [
            ("read", client.get(&*begins, Some(read)).await.map(drop)),
            ("write", client.txn(write).await.map(drop)),
        ] {
            findings.push(right(&begins, what, does, result));
        }
    }
    findings
}

fn right(begins: &str, what: &str, does: &str, result: Result<(), Error>) -> Finding {
    match result {
        Ok(()) => Finding::good(format!("this user may {does} {what}, {begins}*")),
        Err(error) => Finding::bad(
            format!("this user may not {does} {what}, {begins}*: {error}"),
            format!("etcdctl role grant-permission ROLE readwrite --prefix=true {begins}"),
        ),
    }
}

/// Keys below the prefix that no process of ours stands behind.
async fn leftovers(connection: &Connection<'_>) -> Result<Vec<Finding>, Failure> {
    let (mut names, mut contenders) = (0_u64, 0_u64);
    let mut unleased = Leftovers::default();
    let mut strange = Leftovers::default();
    let mut all = connection.locks.list("");
    while let Some(queue) = all.next().await? {
        names += 1;
        for contender in queue.contenders() {
            contenders += 1;
            if contender.lease().is_none() {
                unleased.add(contender);
            } else if contender.holder().is_none() {
                strange.add(contender);
            }
        }
    }
    let mut findings = vec![Finding::good(format!(
        "{names} names are locked, by {contenders} contenders"
    ))];
    if unleased.many > 0 {
        findings.push(Finding::bad(
            format!(
                "{} keys hang on no lease, and close their names for ever: {}",
                unleased.many,
                unleased.named()
            ),
            "delete each with `etcdctl del KEY` once its owner is known to be gone",
        ));
    }
    if strange.many > 0 {
        findings.push(Finding::good(format!(
            "{} contenders are not of etcd-locked (Go's concurrency package, etcdctl lock, …): {}",
            strange.many,
            strange.named()
        )));
    }
    Ok(findings)
}

/// Some keys, of which a few are named.
#[derive(Debug, Default)]
struct Leftovers {
    many: u64,
    first: Vec<String>,
}

impl Leftovers {
    fn add(&mut self, contender: &Contender) {
        self.many += 1;
        if self.first.len() < NAMED {
            self.first.push(contender.shown_key());
        }
    }

    fn named(&self) -> String {
        let more = if self.many > NAMED as u64 {
            ", …"
        } else {
            ""
        };
        format!("{}{more}", self.first.join(", "))
    }
}
