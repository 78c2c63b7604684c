//! Connection to the witness: carries a worker's reports, and the acknowledgement of each body's begin.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Signal, getpgrp, getpid, kill_current_process_group};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::{mpsc, oneshot, watch};

use crate::clock::now;
use crate::history::Said;

/// Message on the connection, as one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Message {
    pub(crate) at: u64,
    #[serde(flatten)]
    pub(crate) said: Said,
}

/// Worker's end of the connection; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct WitnessConnection(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    send: mpsc::UnboundedSender<String>,
    awaited: Mutex<HashMap<u64, oneshot::Sender<()>>>,
    calls: AtomicU64,
    /// Number of lines that are not written yet.
    pending: watch::Sender<u64>,
}

impl WitnessConnection {
    /// Connects to the witness as this process. The process ends when the witness does.
    pub(crate) async fn connect(witness: &str, process: u32) -> io::Result<Self> {
        let connection = TcpStream::connect(witness).await?;
        connection.set_nodelay(true)?;
        let (read, mut write) = connection.into_split();
        let (send, mut lines) = mpsc::unbounded_channel::<String>();
        let connected = Self(Arc::new(Shared {
            send,
            awaited: Mutex::default(),
            calls: AtomicU64::new(0),
            pending: watch::Sender::new(0),
        }));
        write.write_all(format!("{process}\n").as_bytes()).await?;
        let shared = connected.0.clone();
        tokio::spawn(async move {
            while let Some(mut batch) = lines.recv().await {
                let mut many = 1;
                while let Ok(line) = lines.try_recv() {
                    batch += &line;
                    many += 1;
                }
                if write.write_all(batch.as_bytes()).await.is_err() {
                    end();
                }
                shared.pending.send_modify(|pending| *pending -= many);
            }
        });
        tokio::spawn(acknowledge(connected.clone(), read));
        Ok(connected)
    }

    pub(crate) fn call(&self) -> u64 {
        self.0.calls.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn say(&self, said: Said) {
        self.say_at(now(), said);
    }

    pub(crate) fn say_at(&self, at: u64, said: Said) {
        if let Ok(line) = serde_json::to_string(&Message { at, said }) {
            self.0.pending.send_modify(|pending| *pending += 1);
            let _ = self.0.send.send(line + "\n");
        }
    }

    /// Reports that a body has begun or writes, and waits for the witness's acknowledgement.
    pub(crate) async fn acknowledged(&self, at: u64, call: u64, said: Said) {
        let (send, acknowledged) = oneshot::channel();
        self.awaited().insert(call, send);
        self.say_at(at, said);
        let _ = acknowledged.await;
    }

    /// Waits until everything is written.
    pub(crate) async fn flushed(&self) {
        let mut pending = self.0.pending.subscribe();
        let _ = pending.wait_for(|pending| *pending == 0).await;
    }

    fn awaited(&self) -> std::sync::MutexGuard<'_, HashMap<u64, oneshot::Sender<()>>> {
        self.0.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the numbers of acknowledged calls, one per line.
async fn acknowledge(witness: WitnessConnection, read: OwnedReadHalf) {
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(text)) = lines.next_line().await {
        let call = text.parse().ok();
        if let Some(begun) = call.and_then(|call: u64| witness.awaited().remove(&call)) {
            let _ = begun.send(());
        }
    }
    end();
}

/// Ends this process, and the processes it has started if it leads a group.
fn end() -> ! {
    if getpgrp() == getpid() {
        let _ = kill_current_process_group(Signal::KILL);
    }
    std::process::exit(1)
}
