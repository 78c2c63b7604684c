//! Command `kick`: requests a lock from its holder. If the holder does not respond, it can delete the holder's key (rule P40).

use std::io::{self, BufRead, IsTerminal};
use std::time::{Duration, Instant};

use etcd_locked::etcd_client::{Client, Compare, CompareOp, KeyValue, PutOptions, Txn, TxnOp};
use etcd_locked::{Contender, Holder, Queue, Standing};
use serde_json::json;
use tokio::time::sleep;

use crate::connection::{Connection, answer};
use crate::contender::{object, process, shown, time};
use crate::failure::Failure;
use crate::options::Kick;
use crate::output::{ask, print, print_object, say};

/// How long a process may take to respond: longer than a key takes to name its new call.
const ANSWERS: Duration = Duration::from_secs(2);
/// How long its body may take to end before it counts as still running: more than the 10 s that `exec` gives a command.
const ENDS: Duration = Duration::from_secs(11);
/// How long a request stays in etcd if this command is killed, in seconds.
const LASTS: i64 = 10;
/// Pause between two reads of etcd.
const PAUSE: Duration = Duration::from_millis(25);

pub(crate) async fn kick(connection: &Connection<'_>, options: &Kick) -> Result<bool, Failure> {
    let Some(queue) = connection.queue(&options.name).await? else {
        return Ok(false);
    };
    let holders = holders(&queue, options)?;
    let mut client = connection.client().await?;
    if !(connection.json && options.yes) {
        tell(&queue, &holders);
    }
    let name = queue.name();
    let question = format!("Take `{name}` away? What its holder has half done stays so.");
    if !options.yes && !is_confirmed(&question)? {
        say(format_args!("nothing was done"));
        return Ok(false);
    }
    let mut all = true;
    let mut failed = None;
    for holder in holders {
        let who = process(holder);
        match kick_holder(connection, &mut client, options, holder).await {
            Ok((outcome, stops)) => {
                all &= outcome.is_taken();
                // The lock has already been taken away, even if this cannot be printed.
                let _ = match connection.json {
                    true => print_object(&json!({
                        "name": name,
                        "taken": outcome.is_taken(),
                        "outcome": outcome.word(),
                        "holder": object(holder),
                        "stops_within_ms": stops.map(|it| it.as_millis()),
                    })),
                    false => print(&outcome.text(&who, stops)),
                };
            }
            Err(failure) => {
                say(format_args!("etcd-locked: whether {who} holds it is unknown: {failure}"));
                failed = Some(failure);
            }
        }
    }
    failed.map_or(Ok(all), Err)
}

/// Sends the request to one holder, and deletes its key if that has to be forced. Also returns how long its lease still lives.
async fn kick_holder(
    connection: &Connection<'_>,
    client: &mut Client,
    options: &Kick,
    holder: &Contender,
) -> Result<(Outcome, Option<Duration>), Failure> {
    let target = Target::of(holder);
    let mut outcome = target.request(client, &connection.kick_root()).await?;
    let stops = stops_within(client, holder).await;
    if let Outcome::Silent(_) | Outcome::RunsOn = outcome {
        let is_wanted = || {
            say(format_args!("{}", outcome.text(&process(holder), stops)));
            is_confirmed("Delete its key anyway? The next holder may then run beside its body.")
        };
        if options.force || (!options.yes && is_wanted()?) {
            outcome = match target.delete(client).await? {
                true => Outcome::Deleted,
                false if matches!(outcome, Outcome::RunsOn) => Outcome::Ended,
                false => Outcome::NotHeld,
            };
        }
    }
    Ok((outcome, stops))
}

/// Outcome of a kick.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The holder's body has ended, and then its lock has gone.
    Ended,
    /// The holder's process has the request, but its body has not ended yet.
    RunsOn,
    /// The call that was shown does not hold it.
    NotHeld,
    /// Its process has not confirmed the request, for this reason.
    Silent(String),
    /// Its key was deleted without a confirmation.
    Deleted,
}

impl Outcome {
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self, Self::Ended | Self::Deleted)
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::RunsOn => "runs on",
            Self::NotHeld => "not held",
            Self::Silent(_) => "silent",
            Self::Deleted => "deleted",
        }
    }

    pub(crate) fn text(&self, who: &str, stops: Option<Duration>) -> String {
        let late = stops.map_or("?".into(), |it| format!("{} if cut off", shown(it)));
        match self {
            Self::Ended => format!("taken from {who}: its body has ended, and its lock is gone"),
            Self::RunsOn => format!(
                "{who} has the request, but its body still runs: it ignores losses, blocks its thread, or is a command that \
                 is ending. The lock passes on when it ends; `--force` deletes the key now"
            ),
            Self::NotHeld => {
                format!("{who} released it, or passed it to another of its calls: nothing taken")
            }
            Self::Silent(why) => format!(
                "{who} {why}: nothing taken. `--force` deletes its key, but its body may run on (at most {late})"
            ),
            Self::Deleted => format!("key of {who} deleted: its body may run on (at most {late})"),
        }
    }
}

/// Returns the holders to kick: all that are known to hold the name, or the one given by `--holder`.
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

/// Returns false for a permit that may also be waiting for another one.
pub(crate) fn is_known_to_hold(contender: &Contender) -> bool {
    contender.standing() == Standing::Holds
}

fn tell(queue: &Queue, holders: &[&Contender]) {
    for holder in holders {
        let (who, time) = (process(holder), time(holder));
        say(format_args!("{} is held by {who}, for {time}", queue.name()));
        if !holder.group().is_empty() {
            let group = holder.group().join(" ");
            say(format_args!("  its call also holds these, and loses them too: {group}"));
        }
    }
    let may = queue.holders().filter(|it| !is_known_to_hold(it)).count();
    if may > 0 {
        say(format_args!(
            "  {may} more hold a permit or wait for one: to take one away, give its key with --holder"
        ));
    }
    match queue.waiters().next() {
        Some(next) => say(format_args!("  next is {}, waiting for {}", process(next), time(next))),
        None => say(format_args!("  no other process waits for it")),
    }
}

fn is_confirmed(question: &str) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage("cannot ask without a terminal: use --yes".to_owned()));
    }
    ask(format_args!("{question} [y/N]"))?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(["y", "yes"].contains(&line.trim().to_lowercase().as_str()))
}

/// Returns how long its lease can still live, unless it is renewed: by then a holder that is cut off has stopped.
async fn stops_within(client: &mut Client, holder: &Contender) -> Option<Duration> {
    let left = answer(client.lease_time_to_live(holder.lease()?, None)).await.ok()?;
    u64::try_from(left.granted_ttl()).ok().map(Duration::from_secs)
}

/// Key of a contender as it was read, and the call that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) key: Vec<u8>,
    pub(crate) created: i64,
    pub(crate) changed: i64,
    /// Call of the holder; `None` for a client of another kind, which cannot receive requests.
    pub(crate) call: Option<u64>,
}

impl Target {
    pub(crate) fn of(contender: &Contender) -> Self {
        Self {
            key: contender.key().to_vec(),
            created: contender.created(),
            changed: contender.changed(),
            call: contender.holder().and_then(Holder::call),
        }
    }

    /// Requests the lock from the call, and waits until the call has given it up. `root` is the prefix of the requests' keys.
    pub(crate) async fn request(
        &self,
        client: &mut Client,
        root: &str,
    ) -> Result<Outcome, Failure> {
        let (Some(call), Ok(key)) = (self.call, str::from_utf8(&self.key)) else {
            return Ok(Outcome::Silent("is another kind of client, and cannot be asked".into()));
        };
        let unasked = |failure| match failure {
            Failure::Denied(why) | Failure::Full(why) => {
                Ok(Outcome::Silent(format!("cannot be asked: {why}")))
            }
            failure => Err(failure),
        };
        let lease = match answer(client.lease_grant(LASTS, None)).await {
            Ok(lease) => lease.id(),
            Err(failure) => return unasked(failure),
        };
        let at = format!("{root}{lease:x}");
        let wish = json!([key, self.created, call]).to_string();
        let put = client.put(&*at, &*wish, Some(PutOptions::new().with_lease(lease)));
        let outcome = match answer(put).await {
            Ok(_) => self.outcome(client, &at, &wish).await,
            Err(failure) => unasked(failure),
        };
        let _ = answer(client.lease_revoke(lease)).await; // it would expire anyway
        outcome
    }

    async fn outcome(&self, client: &mut Client, at: &str, wish: &str) -> Result<Outcome, Failure> {
        let asked = Instant::now();
        loop {
            let reply = answer(client.get(at, None)).await?;
            match reply.kvs().first().map(|kv| kv.value()) {
                Some(b"stopping") => break,
                Some(value) if value != wish.as_bytes() => {
                    let why = "responds that this call does not hold it now (it waits for its other names, or has ended)";
                    return Ok(match self.is_over(client, ANSWERS).await? {
                        true => Outcome::NotHeld,
                        false => Outcome::Silent(why.to_owned()),
                    });
                }
                Some(_) if asked.elapsed() < ANSWERS => sleep(PAUSE).await,
                Some(_) => {
                    // Withdraws the request, unless the holder is confirming it at this moment.
                    let still = Compare::value(at, CompareOp::Equal, wish);
                    let txn = Txn::new().when([still]).and_then([TxnOp::delete(at, None)]);
                    answer(client.txn(txn)).await?;
                }
                None => return Ok(Outcome::Silent("does not answer (stopped or cut off)".into())),
            }
        }
        Ok(match self.is_over(client, ENDS).await? {
            true => Outcome::Ended,
            false => Outcome::RunsOn,
        })
    }

    /// Returns true if the call loses its key within this time.
    async fn is_over(&self, client: &mut Client, within: Duration) -> Result<bool, Failure> {
        let begun = Instant::now();
        while self.changed(client).await?.is_some() {
            if begun.elapsed() > within {
                return Ok(false);
            }
            sleep(PAUSE).await;
        }
        Ok(true)
    }

    /// Deletes its key without a request, if the key is still this contender's. Returns whether it did.
    ///
    /// So it never hits a later process, or a later call of the same process that has held the lock for a second. Before that, a process
    /// passes its key to its next call without writing to etcd.
    async fn delete(&self, client: &mut Client) -> Result<bool, Failure> {
        let key = &*self.key;
        while let Some(changed) = self.changed(client).await? {
            let same = Compare::mod_revision(key, CompareOp::Equal, changed);
            let txn = Txn::new().when([same]).and_then([TxnOp::delete(key, None)]);
            if answer(client.txn(txn)).await?.succeeded() {
                return Ok(true);
            }
            // The same call may have rewritten its record.
        }
        Ok(false)
    }

    /// Returns the revision at which its key was last written. Returns `None` if the key is gone, was replaced, or names another call, or
    /// if another kind of client has rewritten its own key.
    async fn changed(&self, client: &mut Client) -> Result<Option<i64>, Failure> {
        let found = answer(client.get(&*self.key, None)).await?;
        let is_still = |kv: &&KeyValue| {
            let call = Holder::parse(kv.value()).and_then(|it| it.call());
            let is_same = call.is_some() || kv.mod_revision() == self.changed;
            kv.create_revision() == self.created && call == self.call && is_same
        };
        Ok(found.kvs().first().filter(is_still).map(KeyValue::mod_revision))
    }
}
