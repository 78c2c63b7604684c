//! Terminal of `top`: reads keys and etcd, draws, and carries out the model's effects.

use std::future::{Future, pending};
use std::io::{self, IsTerminal};
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

use etcd_locked::Queue;
use etcd_locked::etcd_client::Client;
use futures_util::future::join_all;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tokio::signal::unix::SignalKind;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::departures::{Departures, count, rates};
use super::draw::draw;
use super::model::{Effect, Model, Place, Seen, few};
use crate::connection::{Connection, answer};
use crate::contender::cells;
use crate::failure::Failure;
use crate::kick::{Target, is_known_to_hold};
use crate::options::Top;
use crate::output::{on_terminal, say};
use crate::row::Row;
use crate::signals;

/// Least length of a pause, as a multiple of the read before it, so that `top` does not keep etcd busy.
const REST: u32 = 5;

pub(crate) async fn top(connection: &Connection<'_>, options: &Top) -> Result<bool, Failure> {
    if !on_terminal() || !io::stdin().is_terminal() {
        let why = "`top` needs a terminal; `ls --watch --json` does not";
        return Err(Failure::Usage(why.to_owned()));
    }
    // Of all endpoints, because `top` may run longer than one endpoint does.
    let client = connection.locks.client().await?;
    let departures = Departures::default();
    let counting = count(client.clone(), &connection.prefix, &options.below, &departures);
    let mut counting = pin!(counting);
    let mut model = Model::default();
    let read = |name: Option<&str>, after| {
        let name = name.map(str::to_owned);
        Box::pin(read(connection, options, &departures, name, after))
    };
    // Before the terminal changes, so that the user sees a failure.
    let (first, mut pause) = read(None, Duration::ZERO).await?;
    model.update(first);
    // The terminal must be restored before these signals end the process.
    let mut terminated =
        signals([SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()])?;
    let mut terminal = ratatui::try_init()?;
    let mut events = events();
    let mut reading = read(None, pause);
    let mut kick: Pin<Box<dyn Future<Output = String>>> = Box::pin(pending());
    let ended = async {
        loop {
            terminal.draw(|frame| draw(frame, &model))?;
            // Keys work even while etcd does not respond.
            let effect = tokio::select! {
                event = events.recv() => act(&mut model, event),
                _ = terminated.recv() => Effect::Quit,
                never = &mut counting => match never {},
                said = &mut kick => {
                    model.kicked(said);
                    kick = Box::pin(pending());
                    Effect::Read
                }
                seen = &mut reading => {
                    match seen {
                        Ok((seen, rest)) => {
                            pause = rest;
                            model.update(seen);
                        }
                        Err(failure) => model.failure = Some(failure.to_string()),
                    }
                    reading = read(model.name(), pause);
                    Effect::Nothing
                }
            };
            match effect {
                Effect::Quit => return io::Result::Ok(()),
                Effect::Nothing => {}
                Effect::Read => reading = read(model.name(), Duration::ZERO),
                Effect::Kick(holders) => {
                    kick = Box::pin(kick_all(client.clone(), connection.kick_root(), holders));
                }
            }
        }
    }
    .await;
    ratatui::restore();
    ended?;
    if model.kicks {
        say(format_args!(
            "etcd-locked: the last kick was still in progress, so what it has taken away is not known"
        ));
    }
    Ok(true)
}

/// Handles an event of the terminal; `None` means that there is no terminal any more.
fn act(model: &mut Model, event: Option<Event>) -> Effect {
    match event {
        None => Effect::Quit,
        Some(Event::Key(key)) if key.kind != KeyEventKind::Release => {
            match (key.modifiers.contains(KeyModifiers::CONTROL), key.code) {
                (false, code) => model.press(code),
                (true, KeyCode::Char('c')) => Effect::Quit,
                (true, _) => Effect::Nothing,
            }
        }
        // For example another size.
        Some(_) => Effect::Nothing,
    }
}

/// Returns a channel of the terminal's events, read by a separate thread that ends with the process.
fn events() -> mpsc::Receiver<Event> {
    let (all, events) = mpsc::channel(16);
    std::thread::spawn(move || {
        while let Ok(event) = event::read()
            && all.blocking_send(event).is_ok()
        {}
    });
    events
}

/// Reads all names, or the contenders of one, after this time. Also returns how long to wait before the next read.
async fn read(
    connection: &Connection<'_>,
    options: &Top,
    departures: &Departures,
    name: Option<String>,
    after: Duration,
) -> Result<(Seen, Duration), Failure> {
    sleep(after).await;
    let began = Instant::now();
    let seen = match name {
        Some(name) => contenders(connection, &name).await.map(Seen::Contenders),
        None => names(connection, options).await.map(Seen::Names),
    };
    // After a failure too: while reads fail, the counts must not grow by every name.
    let rates = rates(departures);
    let mut seen = seen?;
    if let (Seen::Names(rows), Some(rates)) = (&mut seen, rates) {
        for row in rows {
            row.gone = Some(rates.get(&row.name).copied().unwrap_or_default());
        }
    }
    let rest = began.elapsed().saturating_mul(REST);
    Ok((seen, options.every.max(rest)))
}

async fn names(connection: &Connection<'_>, options: &Top) -> Result<Vec<Row>, Failure> {
    let mut names = connection.locks.list(&options.below);
    let mut rows = Vec::new();
    while let Some(queue) = answer(names.next()).await? {
        rows.push(Row::of(&queue));
    }
    Ok(rows)
}

/// Returns the contenders of a name; none if it is free.
async fn contenders(connection: &Connection<'_>, name: &str) -> Result<Vec<Place>, Failure> {
    let queue = answer(connection.locks.queue(name)).await?;
    let contenders = queue.iter().flat_map(Queue::contenders);
    let place =
        |it| Place { cells: cells(it), target: Target::of(it), holds: is_known_to_hold(it) };
    Ok(contenders.map(place).collect())
}

/// Requests the lock from these holders; returns the message.
async fn kick_all(client: Client, root: String, holders: Vec<Place>) -> String {
    let ask = async |it: &Place| it.target.request(&mut client.clone(), &root).await;
    let outcomes = join_all(holders.iter().map(ask)).await;
    let (mut taken, mut others) = (vec![], vec![]);
    for (process, outcome) in holders.iter().map(Place::process).zip(outcomes) {
        match outcome {
            Ok(outcome) if outcome.is_taken() => taken.push(process),
            Ok(outcome) => others.push(outcome.text(process, None)),
            Err(why) => {
                others.push(format!("whether it was taken from {process} is unknown: {why}"));
            }
        }
    }
    if !taken.is_empty() {
        others.insert(0, format!("taken from {}", few(&taken)));
    }
    few(&others)
}
