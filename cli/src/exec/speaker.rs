//! Speaker: says on standard error what `exec` has to say, from a thread of its own.
//!
//! A write may take long: a full pipe, a terminal that is stopped, a file on a disk that is busy. It must not delay the kill.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::output::say;

/// How long the end of a process waits for a standard error that takes nothing.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Speaker {
    /// For other threads; `say` is the same.
    pub(super) texts: Sender<String>,
    done: Receiver<()>,
}

impl Speaker {
    /// `name`: the lock's, with which each line begins.
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

    /// Says it soon. It never waits.
    pub(super) fn say(&self, text: impl Into<String>) {
        let _ = self.texts.send(text.into());
    }

    /// Ends once all is said, or standard error has taken nothing for a second. No call may wait for standard error after that.
    pub(super) fn finish(self) {
        drop(self.texts);
        let _ = self.done.recv_timeout(PATIENCE);
    }
}
