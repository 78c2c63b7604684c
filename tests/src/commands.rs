//! Commands of a worker process: the lines of its standard input.

use std::io::{self, BufRead};
use std::thread;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Reads the commands in a separate thread. They end with the standard input.
pub fn commands() -> UnboundedReceiver<String> {
    let (send, commands) = unbounded_channel();
    thread::spawn(move || {
        io::stdin().lock().lines().map_while(Result::ok).try_for_each(|line| send.send(line))
    });
    commands
}
