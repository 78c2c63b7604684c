//! Cycle of names: each is held by a task that waits for the next one. Found by the library's own search.

use std::collections::BTreeMap;
use std::time::Duration;

use etcd_locked::Queue;
use etcd_locked::etcd_client::{
    Client, GetOptions, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse,
};
use etcd_locked_core::{Cycle, Key, Kv, Op, Revision, Search, TxnAnswer};
use tokio::time::timeout;

use crate::connection::{Connection, answer};
use crate::failure::Failure;

/// How many ranges of keys are read for one name at most, all searches from its waiters together.
const RANGES: usize = 1_024;

/// How long all of it may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Finds a cycle that a name is in, from that name on; empty, if it is in none. A task writes what it waits for after a second.
///
/// All is read at one revision, so a cycle that is found was there.
pub(crate) async fn of(connection: &Connection<'_>, queue: &Queue) -> Result<Vec<String>, Failure> {
    let search = search(connection, queue);
    let found = timeout(PATIENCE, search).await;
    found.unwrap_or_else(|_| Err(Failure::Etcd(format!("it takes longer than {PATIENCE:?}"))))
}

async fn search(connection: &Connection<'_>, queue: &Queue) -> Result<Vec<String>, Failure> {
    let mut waiters = queue.waiters().peekable();
    if waiters.peek().is_none() {
        return Ok(Vec::new()); // a cycle through a name goes through a call that waits for it
    }
    let client = connection.client().await?;
    let mut ranges = Ranges { client, known: BTreeMap::new(), revision: 0 };
    for waiter in waiters {
        let key = std::str::from_utf8(waiter.key()).ok();
        let Some((key, created)) = key.zip(Revision::new(waiter.created())) else {
            continue;
        };
        let start = (key.into(), created);
        let mut search = Search::new(&connection.prefix, start);
        loop {
            let reads = search.reads();
            if reads.is_empty() {
                break;
            }
            let answer = ranges.read(&reads).await?;
            if let Some(cycle) = search.answered(Some(answer)) {
                return Ok(names(&cycle, &connection.prefix));
            }
        }
    }
    match queue.contenders().len() > Search::CONTENDERS as usize {
        true => Err(Failure::Etcd(format!(
            "of its contenders only the oldest {} are looked at",
            Search::CONTENDERS
        ))),
        false => Ok(Vec::new()),
    }
}

/// The names of a cycle's keys, from the first one back to it.
fn names(cycle: &Cycle, prefix: &str) -> Vec<String> {
    let keys = cycle.keys();
    let names =
        keys.filter_map(|(key, _)| Some(key.strip_prefix(prefix)?.rsplit_once('/')?.0.to_owned()));
    let mut names: Vec<_> = names.collect();
    // Who waits for a name and who holds it are neighbours.
    names.dedup();
    names.extend(names.first().cloned());
    names
}

/// Ranges of keys at one revision, each read once.
struct Ranges {
    client: Client,
    known: BTreeMap<Key, Vec<Kv>>,
    /// That of the first answer; 0 before.
    revision: i64,
}

impl Ranges {
    async fn read(&mut self, reads: &[Op]) -> Result<TxnAnswer, Failure> {
        let ranges: Vec<_> = reads.iter().filter_map(range).collect();
        let missing = ranges.iter().filter(|(prefix, _)| !self.known.contains_key(*prefix));
        let missing: Vec<_> = missing.collect();
        if self.known.len() + missing.len() > RANGES {
            return Err(Failure::Etcd(format!("it takes more than {RANGES} reads")));
        }
        if !missing.is_empty() {
            let gets = missing.iter().map(|(prefix, limit)| {
                let options = GetOptions::new()
                    .with_prefix()
                    .with_limit(*limit)
                    .with_sort(SortTarget::Create, SortOrder::Ascend)
                    .with_revision(self.revision);
                TxnOp::get(&***prefix, Some(options))
            });
            let gets: Vec<_> = gets.collect();
            let answered = answer(self.client.txn(Txn::new().and_then(gets))).await?;
            if self.revision == 0 {
                self.revision = answered.header().map_or(0, |header| header.revision());
            }
            for ((prefix, _), found) in missing.into_iter().zip(answered.op_responses()) {
                self.known.insert((*prefix).clone(), keys(found));
            }
        }
        let malformed = || Failure::Etcd("etcd gives no revision".to_owned());
        Ok(TxnAnswer {
            revision: Revision::new(self.revision).ok_or_else(malformed)?,
            succeeded: true,
            answers: ranges.iter().map(|(prefix, _)| self.known[*prefix].clone()).collect(),
        })
    }
}

/// The prefix that a search reads, and how many keys of it; a search reads nothing else.
fn range(read: &Op) -> Option<(&Key, i64)> {
    match read {
        Op::Range { prefix, limit, .. } => Some((prefix, limit.map_or(0, i64::from))),
        _ => None,
    }
}

fn keys(answer: TxnOpResponse) -> Vec<Kv> {
    let TxnOpResponse::Get(mut found) = answer else {
        return Vec::new();
    };
    let keys = found.take_kvs().into_iter().filter_map(|kv| {
        let (create_revision, mod_revision) =
            (Revision::new(kv.create_revision())?, Revision::new(kv.mod_revision())?);
        let lease = Some(kv.lease());
        let (key, value) = kv.into_key_value();
        Some(Kv { key, value, create_revision, mod_revision, lease })
    });
    keys.collect()
}
