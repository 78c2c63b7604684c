//! Channel between the engine's watches and the task that talks to etcd: commands one way, events the other.

use std::sync::Arc;

use etcd_locked_core::{Event, Key, Revision, WatchEvent, WatchId};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// One adding of a watch. The engine reuses its ids but no incarnation, which tells late events of an earlier watch apart.
pub(super) type Incarnation = u64;

/// What the task submits to the engine, which hands it to [`Watches::take`](super::Watches::take).
#[derive(Debug)]
pub(crate) enum StreamEvent {
    /// etcd has answered for this watch.
    Seen(WatchId, Incarnation, WatchEvent),
    /// The task ended, by itself.
    Ended,
    /// The pause after that is over.
    Resume,
}

/// How events are submitted to the engine.
pub(crate) type Submit = Arc<dyn Fn(StreamEvent) + Send + Sync>;

/// What the task is to do.
#[derive(Debug)]
pub(super) enum Command {
    Add { id: WatchId, incarnation: Incarnation, prefix: Key, from: Revision, puts: bool },
    Remove(Incarnation),
}

/// The engine's end of the commands; dropping it ends the task.
pub(super) struct Commands {
    commands: UnboundedSender<Command>,
}

impl Commands {
    /// Both ends of the commands.
    pub(super) fn new() -> (Self, UnboundedReceiver<Command>) {
        let (commands, commanded) = unbounded_channel();
        (Self { commands }, commanded)
    }

    pub(super) fn command(&self, command: Command) {
        // Refused only once the task has ended; the next one starts with all watches.
        let _ = self.commands.send(command);
    }
}

/// The revision at which an event happened.
pub(super) fn revision(event: &Event) -> Revision {
    match event {
        Event::Put(kv) => kv.mod_revision,
        Event::Delete { revision, .. } => *revision,
    }
}
