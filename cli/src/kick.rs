//! `kick`: asks the holder of a lock to give it up; if it does not answer, takes the lock away (rule P40).

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

/// How long a process may take to answer: longer than a key takes to name its new call.
const ANSWERS: Duration = Duration::from_secs(2);
/// How long its body may take to end before it counts as running on: more than the 10 s of a command of `exec`.
const ENDS: Duration = Duration::from_secs(11);
/// How long a request stays in etcd if this command is killed, in seconds.
const LASTS: i64 = 10;
/// The pause between two looks at etcd.
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
                // The lock is taken away already, also if this cannot be written.
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
                say(format_args!("etcd-locked: whether {who} has it is not known: {failure}"));
                failed = Some(failure);
            }
        }
    }
    failed.map_or(Ok(all), Err)
}

/// Asks one holder, and deletes its key where it has to be forced. Returns how long its lease lives from now on, too.
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
            is_confirmed("Delete its key all the same? The next holder may run beside its body.")
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

/// What a kick has come to.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The holder's body has ended, and then its lock has gone.
    Ended,
    /// The holder knows, but its body has not ended yet.
    RunsOn,
    /// The call that was shown does not hold it.
    NotHeld,
    /// Its process has not answered, for this reason.
    Silent(String),
    /// Its key was deleted without an answer.
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
                "{who} was told, but its body still runs: it ignores losses, blocks its thread, or is a command that is \
                 ending. The lock passes on when it ends; with `--force` its key is deleted now"
            ),
            Self::NotHeld => {
                format!("{who} gave it back, or to another of its calls: nothing taken")
            }
            Self::Silent(why) => format!(
                "{who} {why}: nothing taken. With `--force` its key is deleted, and its body may run on (at most {late})"
            ),
            Self::Deleted => format!("key of {who} deleted: its body may run on (at most {late})"),
        }
    }
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

fn is_confirmed(question: &str) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage("not asked on a terminal: confirm with --yes".to_owned()));
    }
    ask(format_args!("{question} [y/N]"))?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(["y", "yes"].contains(&line.trim().to_lowercase().as_str()))
}

/// How long its lease lives at most from now on, unless it is renewed: a holder that learns nothing has stopped by then.
async fn stops_within(client: &mut Client, holder: &Contender) -> Option<Duration> {
    let left = answer(client.lease_time_to_live(holder.lease()?, None)).await.ok()?;
    u64::try_from(left.granted_ttl()).ok().map(Duration::from_secs)
}

/// A contender's key as it was read, and the call that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) key: Vec<u8>,
    pub(crate) created: i64,
    pub(crate) changed: i64,
    /// `None`: it is of another client, which cannot be asked.
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

    /// Asks the call for its lock, and waits until it has given that up. `root`: what the keys of such requests begin with.
    pub(crate) async fn request(
        &self,
        client: &mut Client,
        root: &str,
    ) -> Result<Outcome, Failure> {
        let (Some(call), Ok(key)) = (self.call, str::from_utf8(&self.key)) else {
            return Ok(Outcome::Silent("cannot be asked, as it is another kind of client".into()));
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
        let _ = answer(client.lease_revoke(lease)).await; // it would end by itself
        outcome
    }

    async fn outcome(&self, client: &mut Client, at: &str, wish: &str) -> Result<Outcome, Failure> {
        let asked = Instant::now();
        loop {
            let reply = answer(client.get(at, None)).await?;
            match reply.kvs().first().map(|kv| kv.value()) {
                Some(b"stopping") => break,
                Some(value) if value != wish.as_bytes() => {
                    let why = "answers that this call does not hold it now (it waits for others of its names, or has ended)";
                    return Ok(match self.is_over(client, ANSWERS).await? {
                        true => Outcome::NotHeld,
                        false => Outcome::Silent(why.to_owned()),
                    });
                }
                Some(_) if asked.elapsed() < ANSWERS => sleep(PAUSE).await,
                Some(_) => {
                    // Withdrawn, unless it is answered just now.
                    let still = Compare::value(at, CompareOp::Equal, wish);
                    let txn = Txn::new().when([still]).and_then([TxnOp::delete(at, None)]);
                    answer(client.txn(txn)).await?;
                }
                None => return Ok(Outcome::Silent("does not answer (stopped, or cut off)".into())),
            }
        }
        Ok(match self.is_over(client, ENDS).await? {
            true => Outcome::Ended,
            false => Outcome::RunsOn,
        })
    }

    /// Whether the call loses its key within this time.
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

    /// Deletes its key without asking, while that is still the contender's; returns whether it did.
    ///
    /// So it hits no later process, and no later call of the same process that has held the lock for a second. Before that a process
    /// hands its key on without a word to etcd.
    async fn delete(&self, client: &mut Client) -> Result<bool, Failure> {
        let key = &*self.key;
        while let Some(changed) = self.changed(client).await? {
            let same = Compare::mod_revision(key, CompareOp::Equal, changed);
            let txn = Txn::new().when([same]).and_then([TxnOp::delete(key, None)]);
            if answer(client.txn(txn)).await?.succeeded() {
                return Ok(true);
            }
            // The same call may have written its record anew.
        }
        Ok(false)
    }

    /// Returns the revision at which its key was last written. `None`: it is gone, replaced, or names another call; or another client has
    /// rewritten its own.
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
