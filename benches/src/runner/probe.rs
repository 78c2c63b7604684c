//! Probe of a cluster: a thread that measures round trips while workers run, so seldom that they do not notice.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::trips::Trips;
use super::wires::Wires;
use crate::Result;

const PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Probe {
    thread: JoinHandle<Result<Trips>>,
    /// The thread ends when this is dropped.
    goes_on: Sender<()>,
}

impl Probe {
    pub(crate) fn start(mut wires: Wires) -> Self {
        let (goes_on, over) = channel();
        let thread = thread::spawn(move || {
            let mut trips = Trips::default();
            while over.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                wires.step(&mut trips)?;
            }
            Ok(trips)
        });
        Self { thread, goes_on }
    }

    /// Ends, and answers what was measured.
    pub(crate) fn end(self) -> Result<Trips> {
        drop(self.goes_on);
        let trips = self.thread.join();
        trips.unwrap_or_else(|_| Err("the probe has panicked".to_owned()))
    }
}
