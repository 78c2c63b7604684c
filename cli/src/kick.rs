//! `kick`: takes a lock away from its holder.

use std::io::{self, BufRead, IsTerminal};
use std::time::Duration;

use etcd_locked::etcd_client::{Client, Compare, CompareOp, Txn, TxnOp};
use etcd_locked::{Contender, Queue, Standing};
use serde_json::json;

use crate::connection::{Connection, answer};
use crate::contender::{object, process, shown, time};
use crate::failure::Failure;
use crate::options::Kick;
use crate::output::{ask, print, print_object, say};

pub(crate) async fn kick(connection: &Connection<'_>, options: &Kick) -> Result<bool, Failure> {
    let Some(queue) = connection.queue(&options.name).await? else {
        return Ok(false);
    };
    let holders = holders(&queue, options)?;
    let mut client = connection.client().await?;
    if !(connection.json && options.yes) {
        tell(&queue, &holders);
    }
    if !options.yes && !is_confirmed(&queue)? {
        say(format_args!("nothing was done"));
        return Ok(false);
    }
    let mut all = true;
    let mut failed = None;
    for holder in holders {
        // Only for what is said of it.
        let stops = stops_within(&mut client, holder).await;
        let taken = match take(&mut client, &Target::of(holder)).await {
            Ok(taken) => taken,
            Err(failure) => {
                say(format_args!(
                    "etcd-locked: whether it was taken from {} is not known: {failure}",
                    process(holder)
                ));
                failed = Some(failure);
                continue;
            }
        };
        all &= taken;
        // The locks are taken away already, also if this cannot be written.
        let _ = if connection.json {
            let object = json!({
                "name": queue.name(),
                "taken": taken,
                "holder": object(holder),
                "stops_within_ms": stops.map(|it| it.as_millis()),
            });
            print_object(&object)
        } else if taken {
            let end = match stops.filter(|_| holder.holder().is_some()) {
                Some(stops) => format!(
                    "etcd tells its process now, which drops the body; if it is cut off, its body ends within {}",
                    shown(stops)
                ),
                None => "nothing is known of when it stops".to_owned(),
            };
            print(&format!("taken from {}: {end}", process(holder)))
        } else {
            let kept = "has given it back, or to another of its calls: nothing was taken from it";
            print(&format!("{} {kept}", process(holder)))
        };
    }
    failed.map_or(Ok(all), Err)
}

/// Whom it hits: all that are known to hold the name, or the one that was asked for.
fn holders<'a>(queue: &'a Queue, options: &Kick) -> Result<Vec<&'a Contender>, Failure> {
    let all = queue.holders();
    let Kick { name, holder: Some(key), .. } = options else {
        return Ok(all.filter(|it| is_known_to_hold(it)).collect());
    };
    let of_key: Vec<_> = all.filter(|it| it.shown_key() == *key).collect();
    match of_key.is_empty() {
        true => Err(Failure::Usage(format!(
            "no holder of `{name}` has the key `{key}`: see `etcd-locked who {name} --json`"
        ))),
        false => Ok(of_key),
    }
}

/// False for a permit that may as well wait for another one.
pub(crate) fn is_known_to_hold(contender: &Contender) -> bool {
    contender.standing() == Standing::Holds
}

fn tell(queue: &Queue, holders: &[&Contender]) {
    for holder in holders {
        let (who, time) = (process(holder), time(holder));
        say(format_args!("{} is held by {who}, for {time}", queue.name()));
        if !holder.group().is_empty() {
            let group = holder.group().join(" ");
            say(format_args!("  its call holds these too, and loses them: {group}"));
        }
    }
    let may = queue.holders().filter(|it| !is_known_to_hold(it)).count();
    if may > 0 {
        say(format_args!(
            "  {may} more hold a permit or wait for one: to take one away, name its key with --holder"
        ));
    }
    match queue.waiters().next() {
        Some(next) => say(format_args!("  next is {}, waiting for {}", process(next), time(next))),
        None => say(format_args!("  no other process waits for it")),
    }
}

fn is_confirmed(queue: &Queue) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage("not asked on a terminal: confirm with --yes".to_owned()));
    }
    let name = queue.name();
    ask(format_args!("Take `{name}` away? What its holder has half done stays so. [y/N]"))?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(["y", "yes"].contains(&line.trim().to_lowercase().as_str()))
}

/// How long its lease lives at most from now on, unless it is renewed: a holder that learns nothing has stopped by then.
async fn stops_within(client: &mut Client, holder: &Contender) -> Option<Duration> {
    let left = answer(client.lease_time_to_live(holder.lease()?, None)).await.ok()?;
    u64::try_from(left.granted_ttl()).ok().map(Duration::from_secs)
}

/// A contender's key as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) key: Vec<u8>,
    pub(crate) created: i64,
    pub(crate) changed: i64,
}

impl Target {
    pub(crate) fn of(contender: &Contender) -> Self {
        Self {
            key: contender.key().to_vec(),
            created: contender.created(),
            changed: contender.changed(),
        }
    }
}

/// Deletes a holder's key, if neither the contender nor what its key says of the holder has changed; tells whether it did.
///
/// So it hits no later process, and no later call of the same process that has held the lock for a second. Before that a process hands
/// its key on without a word to etcd.
pub(crate) async fn take(client: &mut Client, target: &Target) -> Result<bool, Failure> {
    let key = &*target.key;
    let still = [
        Compare::create_revision(key, CompareOp::Equal, target.created),
        Compare::mod_revision(key, CompareOp::Equal, target.changed),
    ];
    let txn = Txn::new().when(still).and_then([TxnOp::delete(key, None)]);
    Ok(answer(client.txn(txn)).await?.succeeded())
}
