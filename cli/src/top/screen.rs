//! Terminal of `top`: reads keys and etcd, draws, and does what the model says.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use etcd_locked::etcd_client::Client;
use etcd_locked::{Contender, Queue, Standing};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::draw::draw;
use super::handovers::{Handovers, count};
use super::model::{Effect, Model, Place, Press, Row};
use crate::connection::Connection;
use crate::contender::{held_for, mode, process, queued_for, standing, time};
use crate::failure::Failure;
use crate::kick::take;
use crate::options::Top;

/// How many times as long as a read the pause after it is at least: etcd is not to be busy with `top`.
const REST: u32 = 5;

/// Shows the table until the user quits.
pub(crate) async fn top(connection: &Connection<'_>, options: &Top) -> Result<bool, Failure> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "`top` needs a terminal; `ls --watch --json` does not".to_owned(),
        ));
    }
    let mut client = connection.client().await?;
    let handovers = Handovers::default();
    tokio::spawn(count(
        client.clone(),
        connection.prefix.clone(),
        options.below.clone(),
        handovers.clone(),
    ));
    let mut model = Model::new();
    let read = |name: Option<&str>, after| {
        let name = name.map(str::to_owned);
        Box::pin(read(connection, options, &handovers, name, after))
    };
    // Before the terminal changes, so that its failure is read.
    let first = read(None, Duration::ZERO).await?;
    let mut pause = pause(options.every, first.took);
    model.update(first.rows);
    let mut terminal = ratatui::try_init()?;
    let _restored = Restored;
    let mut keys = keys();
    let mut reading = read(None, pause);
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
                        pause = self::pause(options.every, seen.took);
                        model.update(seen.rows);
                        model.look(seen.places);
                    }
                    // What is shown stays, and says that it is old.
                    Err(failure) => model.note = failure.to_string(),
                }
                reading = read(model.name(), pause);
                Effect::Nothing
            }
        };
        match effect {
            Effect::Quit => return Ok(true),
            Effect::Nothing => {}
            Effect::Read => reading = read(model.name(), Duration::ZERO),
            Effect::Kick(holders) => {
                model.note = kick(&mut client, &holders).await;
                reading = read(model.name(), Duration::ZERO);
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

/// What etcd has said.
struct Seen {
    rows: Vec<Row>,
    /// The contenders of the name that is looked into.
    places: Vec<Place>,
    /// How long the read took.
    took: Duration,
}

/// How long to wait until the next read.
fn pause(every: Duration, took: Duration) -> Duration {
    every.max(took.saturating_mul(REST))
}

/// Reads all names, and all contenders of one, after this time.
async fn read(
    connection: &Connection<'_>,
    options: &Top,
    handovers: &Handovers,
    name: Option<String>,
    after: Duration,
) -> Result<Seen, Failure> {
    sleep(after).await;
    let began = Instant::now();
    let listed = list(connection, options, name.as_deref()).await;
    // After a failure too: while etcd answers no read, the counts must not grow by every name.
    let rates = handovers.take();
    let (mut rows, places) = listed?;
    for row in &mut rows {
        row.handovers = rates.as_ref().map(|rates| rates.of(&row.name));
    }
    let took = began.elapsed();
    Ok(Seen { rows, places, took })
}

/// Reads all names, and all contenders of one.
async fn list(
    connection: &Connection<'_>,
    options: &Top,
    name: Option<&str>,
) -> Result<(Vec<Row>, Vec<Place>), Failure> {
    let mut names = connection.locks.list(&options.below);
    let (mut rows, mut places) = (Vec::new(), Vec::new());
    while let Some(queue) = names.next().await? {
        if name == Some(queue.name()) {
            places = queue.contenders().iter().map(place).collect();
        }
        rows.push(row(&queue));
    }
    Ok((rows, places))
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
        handovers: None,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_reads_are_farther_apart() {
        let (every, ms) = (Duration::from_secs(1), Duration::from_millis);
        assert_eq!(pause(every, ms(200)), every);
        assert_eq!(pause(every, ms(900)), ms(4_500));
    }
}
