//! Witness: collects what workers say, acknowledges each begin and each write, and keeps the register that refuses late tokens.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::checker::liveness::HOT;
use crate::clock::now;
use crate::history::{Event, Said, What};
use crate::worker::connection::Message;

/// The witness of a run; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Witness {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    events: Mutex<Vec<Event>>,
    /// The highest token that each name's register has accepted; `None` while tokens begin anew, and every write is accepted.
    register: Mutex<Option<HashMap<String, i64>>>,
    /// Calls for a hot name that have not been served yet: tasks make them all the time.
    hot: Mutex<BTreeSet<(u32, u64)>>,
    /// When such a task of each process was served last, by the name.
    served: Mutex<BTreeMap<(u32, String), u64>>,
    /// Processes whose calls have all ended.
    idle: Mutex<BTreeSet<u32>>,
    /// How many connections of workers are open.
    open: AtomicUsize,
}

impl Witness {
    /// Listens on a free port of this machine.
    pub(crate) fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let witness = Self { address: listener.local_addr()?, shared: Arc::default() };
        witness.judge_writes(true);
        let listening = witness.clone();
        thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let witness = listening.clone();
                witness.shared.open.fetch_add(1, Ordering::AcqRel);
                thread::spawn(move || {
                    witness.listen(&connection);
                    witness.shared.open.fetch_sub(1, Ordering::AcqRel);
                });
            }
        });
        Ok(witness)
    }

    /// Where workers connect to.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Records something that is so now.
    pub(crate) fn record(&self, what: What) {
        let mut events = lock(&self.shared.events);
        events.push(Event { at: now(), what });
    }

    fn record_at(&self, at: u64, process: u32, said: Said) {
        let what = What::Said { process, said };
        lock(&self.shared.events).push(Event { at, what });
    }

    /// Waits until the last lines of all workers have been read, which have ended; for so long at most.
    pub(crate) fn settle(&self, limit: Duration) {
        let start = Instant::now();
        while self.shared.open.load(Ordering::Acquire) > 0 && start.elapsed() < limit {
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns the events so far, in the order of their times.
    pub(crate) fn history(&self) -> Vec<Event> {
        let mut events = lock(&self.shared.events).clone();
        events.sort_by_key(|event| event.at);
        events
    }

    /// Tells whether each of these processes has been served every one of so many hot names since then.
    pub(crate) fn has_served(&self, processes: &[u32], names: usize, since: u64) -> bool {
        let served = lock(&self.shared.served);
        processes.iter().all(|process| {
            let own = served.iter().filter(|((of, _), _)| of == process);
            own.filter(|(_, at)| **at >= since).count() >= names
        })
    }

    /// Tells whether all calls of these processes have ended.
    pub(crate) fn are_idle(&self, processes: &[u32]) -> bool {
        let idle = lock(&self.shared.idle);
        processes.iter().all(|process| idle.contains(process))
    }

    /// Has the register refuse late tokens, from an empty one on, or accept all.
    pub(crate) fn judge_writes(&self, judges: bool) {
        *lock(&self.shared.register) = judges.then(HashMap::new);
    }

    /// Listens to one worker until its connection ends.
    fn listen(&self, connection: &TcpStream) {
        let _ = connection.set_nodelay(true);
        let mut lines = BufReader::new(connection).lines().map_while(Result::ok);
        let Some(process) = lines.next().and_then(|line| line.parse().ok()) else {
            return;
        };
        // Polls of held bodies, of which only the last one of each body matters.
        let mut polls: HashMap<u64, u64> = HashMap::new();
        for line in lines {
            match serde_json::from_str::<Message>(&line) {
                Ok(message) => self.take(process, message, &mut polls, connection),
                // The last line of a worker that was killed may be cut short.
                Err(_) => break,
            }
        }
        for (call, at) in polls {
            self.record_at(at, process, Said::Polled { call, held: true });
        }
    }

    fn take(
        &self,
        process: u32,
        message: Message,
        polls: &mut HashMap<u64, u64>,
        connection: &TcpStream,
    ) {
        let Message { at, said } = message;
        match &said {
            Said::Polled { call, held: true } => {
                polls.insert(*call, at);
                return;
            }
            Said::Begun { call, held, tokens } => {
                acknowledge(connection, *call);
                if *held && lock(&self.shared.hot).remove(&(process, *call)) {
                    let mut served = lock(&self.shared.served);
                    let names = tokens.iter().map(|(name, _)| name.clone());
                    served.extend(names.map(|name| ((process, name), at)));
                }
            }
            Said::Asked { call, asked } if asked.kind == HOT => {
                lock(&self.shared.hot).insert((process, *call));
            }
            Said::Returned { call, .. } => _ = lock(&self.shared.hot).remove(&(process, *call)),
            Said::Idle => _ = lock(&self.shared.idle).insert(process),
            Said::Write { call, name, token, held } => {
                self.write(process, *call, name, *token);
                acknowledge(connection, *call);
                let call = *call;
                match held {
                    // A write is made in a poll.
                    Some(true) => _ = polls.insert(call, at),
                    Some(false) => {
                        self.record_at(at, process, Said::Polled { call, held: false });
                    }
                    None => {}
                }
                return;
            }
            Said::Ended { call, .. } => {
                if let Some(at) = polls.remove(call) {
                    self.record_at(at, process, Said::Polled { call: *call, held: true });
                }
            }
            _ => {}
        }
        self.record_at(at, process, said);
    }

    /// Accepts a write, unless a later holder has written.
    fn write(&self, process: u32, call: u64, name: &str, token: i64) {
        let mut register = lock(&self.shared.register);
        let accepted = register.as_mut().is_none_or(|register| {
            let last = register.entry(name.to_owned()).or_insert(token);
            let accepted = *last <= token;
            *last = token.max(*last);
            accepted
        });
        self.record(What::Written { process, call, name: name.to_owned(), token, accepted });
    }
}

/// Answers a body that waits; a worker that has been killed needs no answer.
fn acknowledge(mut connection: &TcpStream, call: u64) {
    let _ = connection.write_all(format!("{call}\n").as_bytes());
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
