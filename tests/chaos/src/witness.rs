//! Witness: collects the workers' reports, acknowledges each begin and each write, and keeps the register that refuses late tokens.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use etcd_locked_devkit::until;

use crate::checker::liveness::HOT;
use crate::clock::now;
use crate::history::{Event, Said, What};
use crate::worker::connection::Message;

#[derive(Debug, Clone)]
pub(crate) struct Witness {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
    /// Number of open connections of workers.
    open: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct State {
    events: Vec<Event>,
    /// Highest token that each name's register has accepted; `None` while tokens begin again, and every write is accepted.
    register: Option<HashMap<String, i64>>,
    /// When each process's task for a hot name was last served, by name.
    served: BTreeMap<(u32, String), u64>,
    /// Processes whose calls have all ended.
    idle: BTreeSet<u32>,
}

/// State of a worker, as the witness knows it.
#[derive(Debug)]
struct Worker<'a> {
    process: u32,
    connection: &'a TcpStream,
    /// Last poll of each held body.
    polls: HashMap<u64, u64>,
    /// Calls of tasks that always want a hot name.
    hot: HashSet<u64>,
}

impl Witness {
    pub(crate) fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let witness = Self { address, state: Arc::default(), open: Arc::default() };
        witness.judge_writes(true);
        let listening = witness.clone();
        thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let witness = listening.clone();
                witness.open.fetch_add(1, Ordering::AcqRel);
                thread::spawn(move || {
                    witness.listen(&connection);
                    witness.open.fetch_sub(1, Ordering::AcqRel);
                });
            }
        });
        Ok(witness)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn record(&self, what: What) {
        self.state().record(now(), what);
    }

    /// Waits until the last lines of all workers, which have ended, are read; at most for `limit`.
    pub(crate) fn settle(&self, limit: Duration) {
        let _ = until("all lines are read", limit, || self.open.load(Ordering::Acquire) == 0);
    }

    /// Returns the events so far, in the order of their times.
    pub(crate) fn history(&self) -> Vec<Event> {
        let mut events = self.state().events.clone();
        events.sort_by_key(|event| event.at);
        events
    }

    /// Returns true if each of these processes has been served every hot name since that time.
    pub(crate) fn has_served(&self, processes: &[u32], names: usize, since: u64) -> bool {
        let served = &self.state().served;
        processes.iter().all(|process| {
            let own = served.iter().filter(|((of, _), at)| of == process && **at >= since);
            own.count() >= names
        })
    }

    pub(crate) fn are_idle(&self, processes: &[u32]) -> bool {
        let idle = &self.state().idle;
        processes.iter().all(|process| idle.contains(process))
    }

    /// Makes the register refuse late tokens, beginning with an empty register, or accept all.
    pub(crate) fn judge_writes(&self, judges: bool) {
        self.state().register = judges.then(HashMap::new);
    }

    fn listen(&self, connection: &TcpStream) {
        let _ = connection.set_nodelay(true);
        let mut lines = BufReader::new(connection).lines().map_while(Result::ok);
        let Some(process) = lines.next().and_then(|line| line.parse().ok()) else {
            return;
        };
        let (polls, hot) = (HashMap::new(), HashSet::new());
        let mut worker = Worker { process, connection, polls, hot };
        // The last line of a worker that was killed may be cut short.
        for message in lines.map_while(|line| serde_json::from_str(&line).ok()) {
            self.state().take(message, &mut worker);
        }
        for (call, at) in worker.polls {
            let said = Said::Polled { call, held: true };
            self.state().record(at, What::Said { process, said });
        }
    }
}

impl State {
    fn record(&mut self, at: u64, what: What) {
        self.events.push(Event { at, what });
    }

    fn take(&mut self, Message { at, said }: Message, worker: &mut Worker<'_>) {
        let process = worker.process;
        let polled = |call, held| What::Said { process, said: Said::Polled { call, held } };
        match &said {
            Said::Polled { call, held: true } => {
                worker.polls.insert(*call, at);
                return;
            }
            Said::Asked { call, asked } if asked.kind == HOT => _ = worker.hot.insert(*call),
            Said::Begun { call, held, tokens } => {
                worker.acknowledge(*call);
                if worker.hot.remove(call) && *held {
                    let names = tokens.iter().map(|(name, _)| name.clone());
                    self.served.extend(names.map(|name| ((process, name), at)));
                }
            }
            Said::Idle => _ = self.idle.insert(process),
            Said::Write { call, name, token, held } => {
                let (call, name, token) = (*call, name.clone(), *token);
                let accepted = self.write(&name, token);
                self.record(now(), What::Written { process, call, name, token, accepted });
                worker.acknowledge(call);
                match held {
                    // A write is part of a poll.
                    Some(true) => _ = worker.polls.insert(call, at),
                    Some(false) => self.record(at, polled(call, false)),
                    None => {}
                }
                return;
            }
            Said::Ended { call, .. } => {
                if let Some(at) = worker.polls.remove(call) {
                    self.record(at, polled(*call, true));
                }
            }
            _ => {}
        }
        self.record(at, What::Said { process, said });
    }

    /// Accepts a write, unless a later holder has written.
    fn write(&mut self, name: &str, token: i64) -> bool {
        self.register.as_mut().is_none_or(|register| {
            let last = register.entry(name.to_owned()).or_insert(token);
            let accepted = *last <= token;
            *last = token.max(*last);
            accepted
        })
    }
}

impl Worker<'_> {
    /// Acknowledges a body that waits; it does not matter if its worker has been killed.
    fn acknowledge(&self, call: u64) {
        let _ = { self.connection }.write_all(format!("{call}\n").as_bytes());
    }
}
