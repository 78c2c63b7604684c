//! Terminal of `top`: reads keys and etcd, draws, and does what the model says.

use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use etcd_locked::etcd_client::{Client, EventType, WatchFilterType, WatchOptions};
use etcd_locked::{Contender, Queue, Standing};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::draw::draw;
use super::model::{Effect, Model, Place, Press, Row};
use crate::connection::Connection;
use crate::contender::{held_for, mode, process, queued_for, standing, time};
use crate::failure::Failure;
use crate::kick::take;
use crate::options::Top;

/// Shows the table until the user quits.
pub(crate) async fn top(connection: &Connection<'_>, options: &Top) -> Result<bool, Failure> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "`top` needs a terminal; `ls --watch --json` does not".to_owned(),
        ));
    }
    let mut client = connection.client().await?;
    let gone = Gone::default();
    tokio::spawn(count(
        client.clone(),
        connection.prefix.clone(),
        gone.clone(),
    ));
    let mut model = Model::new();
    let read = |name: Option<&str>, since, after| {
        let name = name.map(str::to_owned);
        Box::pin(read(connection, options, &gone, name, since, after))
    };
    // Before the terminal changes, so that its failure is read.
    let first = read(None, Instant::now(), Duration::ZERO).await?;
    let mut since = first.at;
    model.update(first.rows);
    let mut terminal = ratatui::try_init()?;
    let _restored = Restored;
    let mut keys = keys();
    let mut reading = read(None, since, options.every);
    loop {
        terminal.draw(|frame| draw(frame, &model))?;
        // Keys count while etcd does not answer.
        let effect = tokio::select! {
            key = keys.recv() => match key {
                Some(Key::Press(press)) => model.press(press),
                Some(Key::Resized) => Effect::Nothing,
                None | Some(Key::Interrupt) => Effect::Quit,
            },
            seen = &mut reading => {
                match seen {
                    Ok(seen) => {
                        since = seen.at;
                        model.update(seen.rows);
                        model.look(seen.places);
                    }
                    // What is shown stays, and says that it is old.
                    Err(failure) => model.note = failure.to_string(),
                }
                reading = read(model.name(), since, options.every);
                Effect::Nothing
            }
        };
        match effect {
            Effect::Quit => return Ok(true),
            Effect::Nothing => {}
            Effect::Read => reading = read(model.name(), since, Duration::ZERO),
            Effect::Kick(holders) => {
                model.note = kick(&mut client, &holders).await;
                reading = read(model.name(), since, Duration::ZERO);
            }
        }
    }
}

/// Gives the terminal back when dropped.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// What comes from the terminal.
enum Key {
    Press(Press),
    Resized,
    Interrupt,
}

/// The keys, read on a thread of their own, which ends with the process.
fn keys() -> mpsc::Receiver<Key> {
    let (all, keys) = mpsc::channel(16);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            let Some(key) = key(&event) else { continue };
            if all.blocking_send(key).is_err() {
                return;
            }
        }
    });
    keys
}

fn key(event: &Event) -> Option<Key> {
    let key = match event {
        Event::Resize(..) => return Some(Key::Resized),
        Event::Key(key) if key.kind != KeyEventKind::Release => key,
        _ => return None,
    };
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return (key.code == KeyCode::Char('c')).then_some(Key::Interrupt);
    }
    Some(Key::Press(match key.code {
        KeyCode::Char(char) => Press::Char(char),
        KeyCode::Enter => Press::Enter,
        KeyCode::Esc => Press::Escape,
        KeyCode::Backspace => Press::Backspace,
        KeyCode::Up => Press::Up,
        KeyCode::Down => Press::Down,
        _ => return None,
    }))
}

/// How many keys of each name have gone since they were counted last.
#[derive(Debug, Clone, Default)]
struct Gone(Arc<Mutex<HashMap<String, u32>>>);

impl Gone {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> HashMap<String, u32> {
        std::mem::take(&mut *self.lock())
    }
}

/// Counts keys that go, as long as etcd tells of them; after that there are no hand-overs to see.
async fn count(mut client: Client, prefix: String, gone: Gone) {
    let options = WatchOptions::new()
        .with_prefix()
        .with_filters([WatchFilterType::NoPut]);
    let Ok(mut events) = client.watch(&*prefix, Some(options)).await else {
        return;
    };
    while let Ok(Some(answer)) = events.message().await {
        for event in answer.events() {
            let Some(kv) = event
                .kv()
                .filter(|_| event.event_type() == EventType::Delete)
            else {
                continue;
            };
            let key = String::from_utf8_lossy(kv.key());
            let name = key
                .strip_prefix(&*prefix)
                .and_then(|key| key.rsplit_once('/'));
            if let Some((name, _)) = name {
                *gone.lock().entry(name.to_owned()).or_default() += 1;
            }
        }
    }
}

/// What etcd has said.
struct Seen {
    rows: Vec<Row>,
    /// The contenders of the name that is looked into.
    places: Vec<Place>,
    at: Instant,
}

/// Reads all names, and all contenders of one, after this time. `since`: when they were read last.
async fn read(
    connection: &Connection<'_>,
    options: &Top,
    gone: &Gone,
    name: Option<String>,
    since: Instant,
    after: Duration,
) -> Result<Seen, Failure> {
    sleep(after).await;
    let mut names = connection.locks.list(&options.below);
    let (mut rows, mut places) = (Vec::new(), Vec::new());
    while let Some(queue) = names.next().await? {
        if name.as_deref() == Some(queue.name()) {
            places = queue.contenders().iter().map(place).collect();
        }
        rows.push(row(&queue));
    }
    let at = Instant::now();
    let seconds = (at - since).max(Duration::from_millis(1)).as_secs_f64();
    let gone = gone.take();
    for row in &mut rows {
        let gone = gone.get(&row.name).copied().unwrap_or(0);
        row.handovers = f64::from(gone) / seconds;
    }
    Ok(Seen { rows, places, at })
}

fn row(queue: &Queue) -> Row {
    let holders: Vec<_> = queue.holders().collect();
    Row {
        name: queue.name().to_owned(),
        mode: holders.first().map_or("-", |it| mode(it)),
        holder: match &holders[..] {
            [] => "-".to_owned(),
            [one] => process(one),
            [one, more @ ..] => format!("{} and {} more", process(one), more.len()),
        },
        held: holders.iter().filter_map(|it| held_for(it)).max(),
        waiting: queue.waiters().count(),
        longest: queue.waiters().filter_map(queued_for).max(),
        handovers: 0.0,
    }
}

fn place(contender: &Contender) -> Place {
    Place {
        standing: standing(contender),
        process: process(contender),
        mode: mode(contender),
        time: time(contender),
        key: contender.key().to_vec(),
        created: contender.created(),
        holds: contender.standing() != Standing::Waits,
    }
}

/// Takes the lock away from these; returns what to say.
async fn kick(client: &mut Client, holders: &[Place]) -> String {
    let mut said = Vec::new();
    for holder in holders {
        let who = &holder.process;
        said.push(match take(client, &holder.key, holder.created).await {
            Ok(true) => format!("taken from {who}"),
            Ok(false) => format!("{who} had given it back before"),
            Err(failure) => failure.to_string(),
        });
    }
    said.join("; ")
}
