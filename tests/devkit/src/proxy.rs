//! TCP proxy in front of a server, with the faults of a network on request.
//!
//! A connection has two threads, one for each direction. Each reads chunks, and decides what happens to the oldest one. Each chunk
//! has its own time of arrival, from which its delay counts, as on a long line.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_linger;

use crate::member::thrice;
use crate::wait::until;
use crate::{Result, lock, port};

/// How long a write may block before the proxy checks again whether the connection still lives.
const BLOCKED: Duration = Duration::from_millis(50);
/// How long a thread waits for a change of the faults before it checks again.
const CHECK: Duration = Duration::from_secs(1);
/// How long a forked child may have the listener before its exec.
const FORKED: Duration = Duration::from_secs(5);
/// Bytes in transit at which the sender must wait, as when TCP's window is full.
const WINDOW: usize = 1 << 20;
/// Parts of a second in which a trickling connection passes its bytes.
const DROPS: u64 = 20;
/// HPACK endings of the paths of `Status` and `UserGrantRole`. Both take 23 bytes, and an empty request is valid for either.
const METHODS: [u128; 2] = [0x6571afa066a925a87510ac6e48d36a3f, 0x6571af0da99d8e082d98ac1d49da7a0b];

/// Direction through the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the side that connects to the server.
    Requests,
    /// From the server to the side that connects.
    Answers,
}

/// Proxy for one server; closed when dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    network: Arc<Network>,
    /// Thread that accepts connections; `None` while they are refused.
    accepting: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Network {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    target: String,
    faults: Faults,
    connections: BTreeMap<u64, Connection>,
    accepted: u64,
    /// Bytes passed on so far, by direction.
    bytes: [u64; 2],
    /// Chunks read from one side and not yet written to the other.
    in_flight: u64,
    refuses: bool,
    refuses_status: bool,
    closed: bool,
}

#[derive(Debug, Default)]
struct Faults {
    /// Number up to which connections pass nothing on, by direction; their data waits in the proxy.
    frozen: [u64; 2],
    /// True for a direction in which all data is lost.
    cut: [bool; 2],
    /// Members of etcd whose connections lose everything.
    cut_senders: BTreeSet<u64>,
    delay: Duration,
    /// Bytes per second that a connection passes on in each direction.
    trickle: Option<u64>,
}

#[derive(Debug)]
struct Connection {
    near: Arc<TcpStream>,
    far: Arc<TcpStream>,
    /// Member of etcd that opened it, according to its first request.
    sender: Option<u64>,
    /// True after it has lost data; it cannot continue after the fault.
    lossy: bool,
    /// True after the server's side has gone without the other side noticing.
    half_open: bool,
    reset: bool,
}

/// Fate of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Passes,
    Waits,
    IsLost,
    /// The connection is reset.
    Ends,
}

impl Proxy {
    /// Starts a proxy to `host:port`, without faults.
    pub fn start(target: impl Into<String>) -> Result<Self> {
        let target = target.into();
        thrice(|| Self::start_at((Ipv4Addr::LOCALHOST, port::free()).into(), target.clone()))
    }

    /// Starts one at this address.
    pub fn start_at(address: SocketAddr, target: String) -> Result<Self> {
        let listener = TcpListener::bind(address).map_err(|error| format!("a proxy: {error}"))?;
        let state = Mutex::new(State { target, ..State::default() });
        let network = Arc::new(Network { state, changed: Condvar::new() });
        let accepting = Mutex::new(Some(accept(Arc::clone(&network), listener)));
        Ok(Self { address, network, accepting })
    }

    /// Returns the address to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL to connect to, without TLS.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Leads new connections to another `host:port`; existing ones stay.
    pub fn lead_to(&self, target: impl Into<String>) {
        self.change(|state| state.target = target.into());
    }

    /// Makes etcd refuse its status to all users but root, as 3.5.30 does: their request becomes one that every version refuses.
    pub fn refuse_status(&self) {
        self.change(|state| state.refuses_status = true);
    }

    /// Passes nothing on in this direction, on old and new connections; the data waits in the proxy.
    pub fn freeze(&self, direction: Direction) {
        self.change(|state| state.faults.frozen[direction as usize] = u64::MAX);
    }

    /// Passes nothing on in this direction on existing connections; new ones are not affected.
    pub fn freeze_existing(&self, direction: Direction) {
        self.change(|state| state.faults.frozen[direction as usize] = state.accepted);
    }

    /// Passes everything on again that a freeze holds back, beginning with the waiting data.
    pub fn thaw(&self) {
        self.change(|state| state.faults.frozen = [0, 0]);
    }

    /// Loses all data in this direction, on old and new connections. [`heal`](Self::heal) resets those that lost data.
    pub fn cut(&self, direction: Direction) {
        self.change(|state| state.faults.cut[direction as usize] = true);
    }

    /// Loses all data, in both directions, of the connections that this member of etcd opens to the peer port behind the proxy.
    pub(crate) fn cut_sender(&self, member: u64) {
        self.change(|state| _ = state.faults.cut_senders.insert(member));
    }

    /// Resets all connections, so that the data waiting in them is lost. The proxy accepts new ones.
    pub fn reset_all(&self) {
        self.change(|state| state.connections.values_mut().for_each(Connection::reset));
    }

    /// Closes the server's side of all connections. The other side does not notice until [`heal`](Self::heal).
    pub fn half_open(&self) {
        self.change(|state| {
            for connection in state.connections.values_mut() {
                connection.half_open = true;
                // This fails for a connection that has ended by itself.
                let _ = connection.far.shutdown(Shutdown::Both);
            }
        });
    }

    /// Delays every chunk, in both directions. Chunks that follow each other closely wait in parallel, as on a long line.
    ///
    /// Fractions of a millisecond are kept: a chunk is late by no more than the system takes to wake a thread.
    pub fn delay(&self, delay: Duration) {
        self.change(|state| state.faults.delay = delay);
    }

    /// Passes on only this many bytes per second, for each connection and direction.
    pub fn trickle(&self, bytes_per_second: u64) {
        self.change(|state| state.faults.trickle = Some(bytes_per_second));
    }

    /// Refuses new connections; existing ones stay.
    pub fn refuse(&self) {
        let mut accepting = lock(&self.accepting);
        let Some(thread) = accepting.take() else {
            return;
        };
        self.change(|state| state.refuses = true);
        // Wakes the thread, which then ends. If that fails, the thread does not have a listener any more.
        let _ = TcpStream::connect(self.address);
        let _ = thread.join();
    }

    /// Accepts new connections again.
    pub fn accept_again(&self) -> Result<()> {
        let mut accepting = lock(&self.accepting);
        if accepting.is_none() {
            let mut listener = Err(ErrorKind::AddrInUse.into());
            // A child that another thread has forked while the proxy listened also has the listener, until its exec.
            let _ = until("the proxy's port", FORKED, || {
                listener = TcpListener::bind(self.address);
                listener.is_ok()
            });
            let listener = listener.map_err(|error| format!("the proxy's port: {error}"))?;
            self.change(|state| state.refuses = false);
            *accepting = Some(accept(Arc::clone(&self.network), listener));
        }
        Ok(())
    }

    /// Ends all faults but [`refuse`](Self::refuse). Resets the connections that lost data.
    pub fn heal(&self) {
        self.change(|state| {
            state.faults = Faults::default();
            let connections = state.connections.values_mut();
            connections.filter(|it| it.lossy || it.half_open).for_each(Connection::reset);
        });
    }

    /// Returns the number of connections so far, including those for which the server was down.
    pub fn connections(&self) -> u64 {
        self.network.state().accepted
    }

    /// Returns the number of open connections.
    pub fn open(&self) -> usize {
        self.network.state().connections.len()
    }

    /// Returns the bytes passed on in this direction so far.
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.network.state().bytes[direction as usize]
    }

    /// Returns the number of chunks that wait in the proxy.
    pub fn in_flight(&self) -> u64 {
        self.network.state().in_flight
    }

    /// Returns true if no data waits in the proxy.
    pub fn is_drained(&self) -> bool {
        self.in_flight() == 0
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.network.state());
        self.network.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.refuse();
        self.change(|state| state.closed = true);
        self.reset_all();
    }
}

/// Accepts connections in a separate thread, until the proxy refuses them.
fn accept(network: Arc<Network>, listener: TcpListener) -> JoinHandle<()> {
    thread::spawn(move || {
        for near in listener.incoming() {
            if network.state().refuses {
                return;
            }
            let Ok(near) = near else {
                // Without a free file descriptor, accepting fails until another connection ends.
                thread::sleep(Duration::from_millis(10));
                continue;
            };
            let network = Arc::clone(&network);
            thread::spawn(move || network.serve(near));
        }
    })
}

impl Network {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn serve(&self, near: TcpStream) {
        let (number, target) = {
            let mut state = self.state();
            state.accepted += 1;
            (state.accepted, state.target.clone())
        };
        let Ok(far) = TcpStream::connect(target) else {
            // The other side must see at once that the server is down.
            let _ = set_socket_linger(&near, Some(Duration::ZERO));
            return;
        };
        for stream in [&near, &far] {
            // These fail only for a connection that has ended, which the first read shows.
            let _ = stream.set_nodelay(true);
            let _ = stream.set_write_timeout(Some(BLOCKED));
        }
        let (near, far) = (Arc::new(near), Arc::new(far));
        let mut connection = Connection {
            near: Arc::clone(&near),
            far: Arc::clone(&far),
            sender: None,
            lossy: false,
            half_open: false,
            reset: false,
        };
        let mut state = self.state();
        if state.closed {
            connection.reset();
        }
        state.connections.insert(number, connection);
        drop(state);
        let pump = |from, to, direction| Pump {
            network: self,
            number,
            from,
            to,
            direction,
            chunks: VecDeque::new(),
            bytes: 0,
            is_over: false,
        };
        thread::scope(|scope| {
            scope.spawn(|| pump(&far, &near, Direction::Answers).run());
            pump(&near, &far, Direction::Requests).run();
        });
        self.state().connections.remove(&number);
    }

    /// Waits for a change of the faults, at most for `limit`.
    fn wait(&self, state: MutexGuard<'_, State>, limit: Duration) {
        let waited = self.changed.wait_timeout(state, limit);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

struct Pump<'a> {
    network: &'a Network,
    number: u64,
    from: &'a TcpStream,
    to: &'a TcpStream,
    direction: Direction,
    /// Data in transit, each chunk with its time of arrival; an empty chunk means that the sender has hung up.
    chunks: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    /// True after the sender has hung up or gone.
    is_over: bool,
}

impl Pump<'_> {
    /// Passes data on until one side hangs up, or the connection is reset.
    fn run(mut self) {
        be_punctual();
        let end = self.carry();
        let mut state = self.network.state();
        state.in_flight -= self.chunks.len() as u64;
        if let Some(connection) = state.connections.get_mut(&self.number).filter(|_| end.is_err()) {
            connection.reset();
        }
        drop(state);
        self.network.changed.notify_all();
    }

    /// Reads, and passes each chunk on when its delay is over. Fails if the connection must be reset.
    fn carry(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        let mut first = self.direction == Direction::Requests;
        loop {
            let Some((arrived, chunk)) = self.chunks.front() else {
                if self.is_over {
                    return Err(ErrorKind::ConnectionReset.into());
                }
                self.receive(&mut buffer, &mut first);
                continue;
            };
            let left = self.network.state().faults.delay.saturating_sub(arrived.elapsed());
            if !left.is_zero() && !self.is_over && self.bytes < WINDOW {
                // Waits at most that long at a time, because a heal shortens the delay.
                if is_readable(self.from, left.min(BLOCKED)) {
                    self.receive(&mut buffer, &mut first);
                }
                continue;
            }
            self.pass(*arrived, chunk)?;
            let hung_up = chunk.is_empty();
            self.bytes -= chunk.len();
            self.chunks.pop_front();
            self.network.state().in_flight -= 1;
            if hung_up {
                return Ok(());
            }
        }
    }

    /// Reads one chunk; the first one of a connection may show which member opened it.
    fn receive(&mut self, buffer: &mut [u8], first: &mut bool) {
        let mut from = self.from;
        let Ok(length) = from.read(buffer) else {
            // Data sent before it broke still arrives.
            self.is_over = true;
            return;
        };
        let chunk = &mut buffer[..length];
        self.bytes += length;
        self.is_over |= chunk.is_empty();
        let mut state = self.network.state();
        state.in_flight += 1;
        let [status, refused] = METHODS.map(u128::to_be_bytes);
        let status = chunk.windows(16).position(|it| state.refuses_status && it == status);
        status.inspect(|at| chunk[*at..at + 16].copy_from_slice(&refused));
        self.chunks.push_back((Instant::now(), chunk.to_vec()));
        if *first && let Some(connection) = state.connections.get_mut(&self.number) {
            connection.sender = sender(chunk);
            *first = false;
        }
    }

    /// Passes one chunk on when no fault holds it back.
    ///
    /// Each direction ends separately: a client that hangs up does not take back the data it has sent.
    fn pass(&self, arrived: Instant, chunk: &[u8]) -> io::Result<()> {
        let mut rest = chunk;
        loop {
            let mut state = self.network.state();
            let due = state.faults.delay.saturating_sub(arrived.elapsed());
            match state.fate(self.number, self.direction) {
                Fate::Ends => return Err(ErrorKind::ConnectionReset.into()),
                Fate::Waits => self.network.wait(state, CHECK),
                Fate::IsLost => {
                    if let Some(connection) = state.connections.get_mut(&self.number) {
                        connection.lossy = true;
                    }
                    if !chunk.is_empty() {
                        return Ok(());
                    }
                    // The hang-up does not arrive, so the other side keeps waiting.
                    self.network.wait(state, CHECK);
                }
                Fate::Passes if !due.is_zero() => self.network.wait(state, due),
                Fate::Passes => {
                    let rate = state.faults.trickle;
                    drop(state);
                    if chunk.is_empty() {
                        return self.to.shutdown(Shutdown::Write);
                    }
                    let most = rate.map_or(u64::MAX, |rate| (rate / DROPS).max(1));
                    let most = rest.len().min(usize::try_from(most).unwrap_or(usize::MAX));
                    let written = write(self.to, &rest[..most])?;
                    rest = &rest[written..];
                    let mut state = self.network.state();
                    state.bytes[self.direction as usize] += written as u64;
                    if let Some(rate) = rate {
                        let taken = written as f64 / rate.max(1) as f64;
                        self.network.wait(state, Duration::from_secs_f64(taken));
                    }
                    if rest.is_empty() {
                        return Ok(());
                    }
                }
            }
        }
    }
}

impl State {
    fn fate(&self, number: u64, direction: Direction) -> Fate {
        let (faults, direction) = (&self.faults, direction as usize);
        let Some(connection) = self.connections.get(&number) else {
            return Fate::Ends;
        };
        let sender = connection.sender;
        if connection.reset {
            Fate::Ends
        } else if connection.half_open
            || faults.cut[direction]
            || sender.is_some_and(|sender| faults.cut_senders.contains(&sender))
        {
            Fate::IsLost
        } else if number <= faults.frozen[direction] {
            Fate::Waits
        } else {
            Fate::Passes
        }
    }
}

impl Connection {
    /// Makes both threads end. The last to drop the sockets resets the connection on both sides.
    fn reset(&mut self) {
        self.reset = true;
        for stream in [&self.near, &self.far] {
            // They fail only for a connection that has ended by itself.
            let _ = set_socket_linger(stream, Some(Duration::ZERO));
            let _ = stream.shutdown(Shutdown::Read); // wakes the thread that reads, and sends nothing
        }
    }
}

/// Makes the system wake this thread on time. By default, a timer may be 50 µs late: a tenth of half a millisecond.
fn be_punctual() {
    // If it fails, delays are longer by that much.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

/// Waits until there is something to read, or an end, at most for `limit`.
fn is_readable(from: &TcpStream, limit: Duration) -> bool {
    let mut sockets = [PollFd::new(from, PollFlags::IN)];
    let limit = Timespec::try_from(limit).ok();
    // A signal interrupts it; the caller tries again.
    poll(&mut sockets, limit.as_ref()).is_ok_and(|ready| ready > 0)
}

/// Writes as much as the socket takes; nothing if that would block for long.
fn write(mut to: &TcpStream, chunk: &[u8]) -> io::Result<usize> {
    match to.write(chunk) {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(0),
        written => written,
    }
}

/// Reads which member of etcd sends this request to another one: the head has its id, in hexadecimal.
fn sender(request: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(request);
    let (_, rest) = text.split_once("\r\nX-Server-From: ")?;
    let (id, _) = rest.split_once("\r\n")?;
    u64::from_str_radix(id, 16).ok()
}
