//! `kick`: takes a lock away from its holder.

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::Duration;

use etcd_locked::etcd_client::{Client, Compare, CompareOp, Txn, TxnOp};
use etcd_locked::{Contender, Queue};
use serde_json::json;

use crate::connection::{Connection, answer};
use crate::contender::{object, process, time};
use crate::failure::Failure;
use crate::options::Kick;
use crate::say;
use crate::time::shown;

pub(crate) async fn kick(
    connection: &Connection<'_>,
    options: &Kick,
    json: bool,
) -> Result<bool, Failure> {
    let Some(queue) = connection.queue(&options.name).await? else {
        return Ok(false);
    };
    let holders = holders(&queue, options)?;
    let mut client = connection.client().await?;
    if !json {
        for holder in &holders {
            tell(&queue, holder)?;
        }
    }
    if !options.yes && !is_confirmed(&queue)? {
        say(format_args!("nothing was done"));
        return Ok(false);
    }
    let mut all = true;
    for holder in holders {
        let stops = stops_within(&mut client, holder).await?;
        let taken = take(&mut client, holder.key(), holder.created()).await?;
        all &= taken;
        if json {
            let object = json!({
                "name": queue.name(),
                "taken": taken,
                "holder": object(holder),
                "stops_within_ms": stops.map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX)),
            });
            writeln!(io::stdout(), "{object}")?;
        } else if taken {
            writeln!(
                io::stdout(),
                "taken from {}{}",
                process(holder),
                end(holder, stops)
            )?;
        } else {
            writeln!(io::stdout(), "{} had given it back before", process(holder))?;
        }
    }
    Ok(all)
}

/// Whom it hits.
fn holders<'a>(queue: &'a Queue, options: &Kick) -> Result<Vec<&'a Contender>, Failure> {
    let all = queue.holders();
    let Some(key) = &options.key else {
        return Ok(all.collect());
    };
    let of_key: Vec<_> = all.filter(|it| it.shown_key() == *key).collect();
    match of_key.is_empty() {
        true => Err(Failure::Usage(format!(
            "no holder of `{}` has the key `{key}`: see `etcd-locked who {} --json`",
            options.name, options.name
        ))),
        false => Ok(of_key),
    }
}

fn tell(queue: &Queue, holder: &Contender) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(
        out,
        "{} is held by {}, for {}",
        queue.name(),
        process(holder),
        time(holder)
    )?;
    if !holder.group().is_empty() {
        writeln!(
            out,
            "  its call holds these too, and loses them: {}",
            holder.group().join(" ")
        )?;
    }
    match queue.waiters().next() {
        Some(next) => writeln!(
            out,
            "  next is {}, waiting for {}",
            process(next),
            time(next)
        ),
        None => writeln!(out, "  no process waits for it"),
    }
}

fn is_confirmed(queue: &Queue) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "not asked on a terminal: confirm with --yes".to_owned(),
        ));
    }
    write!(
        io::stdout(),
        "Take `{}` away? What its holder has half done stays so. [y/N] ",
        queue.name()
    )?;
    io::stdout().flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(["y", "yes"].contains(&line.trim().to_lowercase().as_str()))
}

/// How long its lease lives at most from now on, unless it is renewed: a holder that learns nothing has stopped by then.
async fn stops_within(
    client: &mut Client,
    holder: &Contender,
) -> Result<Option<Duration>, Failure> {
    let Some(lease) = holder.lease() else {
        return Ok(None);
    };
    let left = answer(client.lease_time_to_live(lease, None)).await?;
    Ok(u64::try_from(left.granted_ttl())
        .ok()
        .map(Duration::from_secs))
}

/// Deletes a holder's key, if that is still this very contender's; tells whether it was.
pub(crate) async fn take(client: &mut Client, key: &[u8], created: i64) -> Result<bool, Failure> {
    let still = Compare::create_revision(key, CompareOp::Equal, created);
    let txn = Txn::new()
        .when([still])
        .and_then([TxnOp::delete(key, None)]);
    Ok(answer(client.txn(txn)).await?.succeeded())
}

fn end(holder: &Contender, stops: Option<Duration>) -> String {
    match (holder.holder(), stops) {
        (Some(_), Some(stops)) => format!(
            ": etcd tells its process now, which drops the body; if it is cut off, its body ends within {}",
            shown(stops)
        ),
        _ => ": nothing is known of when it stops".to_owned(),
    }
}
