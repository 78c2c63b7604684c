//! Speaker: what the guardian, the process that watches over the command and kills it in time, says on standard error, from a thread
//! of its own.
//!
//! A write may take long: a full pipe, a terminal that is stopped, a file on a disk that is busy. It must not delay the kill.

use std::io::{self, Write};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

#[derive(Debug)]
pub(super) struct Speaker {
    texts: Sender<String>,
    thread: JoinHandle<()>,
}

impl Speaker {
    pub(super) fn start() -> Self {
        let name = std::env::var("ETCD_LOCKED_NAME").unwrap_or_default();
        let (texts, all) = channel::<String>();
        let thread = thread::spawn(move || {
            for text in all {
                write(&format!("etcd-locked: `{name}`: {text}\n"));
            }
        });
        Self { texts, thread }
    }

    /// Says it soon; what standard error does not take is dropped.
    pub(super) fn say(&self, text: String) {
        let _ = self.texts.send(text);
    }

    /// Ends once all is said, however long that takes.
    pub(super) fn finish(self) {
        drop(self.texts);
        let _ = self.thread.join();
    }
}

/// Writes where that does not wait for a reader: a terminal that is stopped, or a full pipe, must not keep the guardian.
fn write(text: &str) {
    let stderr = io::stderr();
    let mut ready = [PollFd::new(&stderr, PollFlags::OUT)];
    if poll(&mut ready, Some(&Timespec::default())) == Ok(1) {
        // It fails where there is no standard error any more.
        let _ = stderr.lock().write_all(text.as_bytes());
    }
}
