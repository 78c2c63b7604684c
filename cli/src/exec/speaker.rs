//! Speaker: prints the messages of `exec` on standard error, from a separate thread.
//!
//! A write may block on a full pipe, a stopped terminal or a busy disk. It must not delay the kill.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::output::say;

/// How long a process waits at its end for a standard error that is blocked.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Speaker {
    /// Sender for other threads; it does what `say` does.
    pub(super) texts: Sender<String>,
    done: Receiver<()>,
}

impl Speaker {
    /// Starts the thread. Each line begins with `name`, the lock's.
    pub(super) fn start(name: String) -> Self {
        let (texts, all) = channel::<String>();
        let (ends, done) = channel();
        thread::spawn(move || {
            for text in all {
                say(format_args!("etcd-locked: `{name}`: {text}"));
            }
            drop(ends);
        });
        Self { texts, done }
    }

    /// Prints the text soon. Never blocks.
    pub(super) fn say(&self, text: impl Into<String>) {
        let _ = self.texts.send(text.into());
    }

    /// Returns once everything is printed, or standard error has been blocked for a second. After that, nothing may wait for it.
    pub(super) fn finish(self) {
        drop(self.texts);
        let _ = self.done.recv_timeout(PATIENCE);
    }
}
