//! Cycle of names: a task that holds one name waits for the next. The library's own search finds it.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use etcd_locked::Queue;
use etcd_locked::etcd_client::{
    Client, GetOptions, KeyValue, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse,
};
use etcd_locked_core::{Cycle, Key, Kv, Revision, Search};

use crate::connection::{Connection, answer};
use crate::failure::Failure;

/// Limit of the ranges of keys read for one name, in all searches from its waiters together.
const RANGES: usize = 1_024;

/// Finds a cycle that contains a name, beginning with that name; empty if there is none. A call that has waited for a second
/// publishes what its task holds.
///
/// All reads are at one revision, so a cycle that is found did exist.
pub(crate) async fn of(connection: &Connection<'_>, queue: &Queue) -> Result<Vec<String>, Failure> {
    let waiters: BTreeSet<(&[u8], i64)> =
        queue.waiters().map(|it| (it.key(), it.created())).collect();
    let family = waiters.first().and_then(|(key, _)| std::str::from_utf8(key).ok());
    let Some((name, _)) = family.and_then(|key| key.rsplit_once('/')) else {
        return Ok(Vec::new()); // a cycle through a name goes through a call that waits for it
    };
    let client = connection.client().await?;
    let mut ranges = Ranges { client, known: BTreeMap::new(), revision: 0 };
    let found = ranges.read(vec![format!("{name}/").into()]).await?;
    let waits = |kv: &&Kv| waiters.contains(&(&*kv.key, kv.create_revision.get()));
    for kv in found.iter().flat_map(|(_, found)| found).filter(waits) {
        let mut search = Search::of_waiter(&connection.prefix, kv);
        while !search.wanted.is_empty() {
            for (family, found) in ranges.read(take(&mut search.wanted)).await? {
                if let Some(cycle) = search.answered(&family, found) {
                    return Ok(names(&cycle, &connection.prefix));
                }
            }
        }
    }
    let most = Search::CONTENDERS;
    match queue.contenders().len() > most as usize {
        true => {
            Err(Failure::Etcd(format!("only the oldest {most} of its contenders were checked")))
        }
        false => Ok(Vec::new()),
    }
}

/// Returns the names of a cycle's keys, from the first one back to it.
fn names(cycle: &Cycle, prefix: &str) -> Vec<String> {
    let keys = cycle.keys.iter();
    let names =
        keys.filter_map(|(key, _)| Some(key.strip_prefix(prefix)?.rsplit_once('/')?.0.to_owned()));
    let mut names: Vec<_> = names.collect();
    // A waiter and the holder of the same name are neighbours.
    names.dedup();
    names.extend(names.first().cloned());
    names
}

/// Ranges of keys at one revision, each read once.
struct Ranges {
    client: Client,
    known: BTreeMap<Key, Vec<Kv>>,
    /// Revision of the first response; 0 before.
    revision: i64,
}

impl Ranges {
    /// Returns the contenders of these families, the oldest first.
    async fn read(&mut self, families: Vec<Key>) -> Result<Vec<(Key, Vec<Kv>)>, Failure> {
        let missing = families.iter().filter(|family| !self.known.contains_key(*family));
        let missing: Vec<_> = missing.collect();
        if self.known.len() + missing.len() > RANGES {
            return Err(Failure::Etcd(format!("the search needs more than {RANGES} reads")));
        }
        for together in missing.chunks(32) {
            let options = GetOptions::new()
                .with_prefix()
                .with_limit(i64::from(Search::CONTENDERS))
                .with_sort(SortTarget::Create, SortOrder::Ascend)
                .with_revision(self.revision);
            let gets = together.iter().map(|family| TxnOp::get(&***family, Some(options.clone())));
            let gets: Vec<_> = gets.collect();
            let answered = answer(self.client.txn(Txn::new().and_then(gets))).await?;
            if self.revision == 0 {
                self.revision = answered.header().map_or(0, |header| header.revision());
            }
            for (family, found) in together.iter().zip(answered.op_responses()) {
                if let TxnOpResponse::Get(mut found) = found {
                    let found = found.take_kvs().into_iter().filter_map(kv).collect();
                    self.known.insert(Key::clone(family), found);
                }
            }
        }
        let found = |family: Key| Some((family.clone(), self.known.get(&family)?.clone()));
        Ok(families.into_iter().filter_map(found).collect())
    }
}

fn kv(kv: KeyValue) -> Option<Kv> {
    let create_revision = Revision::new(kv.create_revision())?;
    let mod_revision = Revision::new(kv.mod_revision())?;
    let lease = Some(kv.lease());
    let (key, value) = kv.into_key_value();
    Some(Kv { key, value, create_revision, mod_revision, lease })
}
