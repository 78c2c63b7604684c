//! Wires to a cluster: to each port of each member a connection by the port's proxy, and another past it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use etcd_locked_devkit::{Cluster, Proxy};

use super::trips::{Between, Trips};
use crate::Result;

/// Exchanges on each wire, of a measurement.
const EXCHANGES: usize = 50;
/// How long an answer may take on a machine that others keep busy.
const PATIENCE: Duration = Duration::from_secs(10);
/// What both ports of etcd answer without asking another member.
const REQUEST: &[u8] = b"GET /version HTTP/1.1\r\nHost: etcd\r\n\r\n";
/// The last byte of that answer: one object of JSON, with none in it.
const END: u8 = b'}';

pub(crate) struct Wires {
    all: Vec<Wire>,
    /// The one that is next, counted from 0.
    next: usize,
}

struct Wire {
    between: Between,
    by_proxy: TcpStream,
    direct: TcpStream,
}

impl Wires {
    pub(crate) fn open(cluster: &Cluster) -> Result<Self> {
        let mut all = Vec::new();
        for member in cluster.members() {
            for (between, proxy, direct) in [
                (Between::ClientAndMember, member.client_proxy(), member.direct()),
                (Between::Members, member.peer_proxy(), member.direct_peer()),
            ] {
                let proxy = proxy.ok_or("a member of the cluster has no proxies")?;
                all.push(Wire::open(between, proxy, direct).map_err(failed)?);
            }
        }
        Ok(Self { all, next: 0 })
    }

    /// Measures all wires, while nothing else runs.
    pub(crate) fn measure(&mut self) -> Result<Trips> {
        let mut trips = Trips::default();
        for _ in 0..EXCHANGES * self.all.len() {
            self.step(&mut trips)?;
        }
        Ok(trips)
    }

    /// Measures one round trip, on the next wire.
    pub(crate) fn step(&mut self, trips: &mut Trips) -> Result<()> {
        let all = self.all.len();
        let wire = self.all.get(self.next).ok_or("a cluster of no members")?;
        self.next = (self.next + 1) % all;
        trips.record(wire.between, wire.round_trip().map_err(failed)?);
        Ok(())
    }
}

impl Wire {
    fn open(between: Between, proxy: &Proxy, direct: SocketAddr) -> io::Result<Self> {
        let open = |address: SocketAddr| {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok::<_, io::Error>(stream)
        };
        Ok(Self { between, by_proxy: open(proxy.address())?, direct: open(direct)? })
    }

    /// How much longer an exchange takes by the proxy: what etcd takes itself is in both.
    fn round_trip(&self) -> io::Result<Duration> {
        let by_proxy = exchange(&self.by_proxy)?;
        Ok(by_proxy.saturating_sub(exchange(&self.direct)?))
    }
}

/// How long etcd takes to answer.
fn exchange(mut wire: &TcpStream) -> io::Result<Duration> {
    let from = Instant::now();
    wire.write_all(REQUEST)?;
    let mut answer = [0; 4_096];
    loop {
        match wire.read(&mut answer)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            length if answer[..length].contains(&END) => return Ok(from.elapsed()),
            _ => {}
        }
    }
}

fn failed(error: io::Error) -> String {
    format!("a round trip could not be measured: {error}")
}
