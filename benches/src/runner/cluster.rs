//! Cluster as users have it: three members and the clients, with half a millisecond each way between any two of them.
//!
//! The way is a proxy in front of each client port and each peer port. All three members have their data on the same disk.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use etcd_locked_devkit::Cluster;

use super::figures::{Spread, time};
use super::{note, server};
use crate::Result;

const MEMBERS: usize = 3;
/// Each way, as between two zones of a region.
const DELAY: Duration = Duration::from_micros(500);
/// Exchanges by each proxy, of a measurement.
const EXCHANGES: usize = 50;
/// What both ports of etcd answer without asking another member.
const REQUEST: &[u8] = b"GET /version HTTP/1.1\r\nHost: etcd\r\n\r\n";
/// The last byte of that answer: one object of JSON, with none in it.
const END: u8 = b'}';

/// Starts it; what the proxies add, in a sentence.
pub(crate) fn start() -> Result<(Cluster, String)> {
    let cluster = Cluster::start_with(MEMBERS, server::setup())?;
    let delay = |delay| {
        let members = cluster.members().iter();
        let proxies = members.flat_map(|it| [it.client_proxy(), it.peer_proxy()]);
        proxies.flatten().for_each(|proxy| proxy.delay(delay));
    };
    delay(DELAY);
    // The time that the proxies take themselves is part of the half millisecond.
    let trip = Duration::from_secs_f64(added(&cluster)?.median.max(0.0));
    delay(DELAY.saturating_sub(trip.saturating_sub(DELAY * 2) / 2));
    let added = added(&cluster)?.shown(time);
    let added = format!("the proxies added {added} to a round trip before any worker began");
    note(&added);
    Ok((cluster, added))
}

/// How many seconds longer an exchange takes by a proxy: what etcd takes itself is taken off.
fn added(cluster: &Cluster) -> Result<Spread> {
    let failed = |error: io::Error| format!("a round trip could not be measured: {error}");
    let mut trips = Vec::new();
    for member in cluster.members() {
        for (proxy, direct) in
            [(member.client_proxy(), member.direct()), (member.peer_proxy(), member.direct_peer())]
        {
            let proxy = proxy.ok_or("a member of the cluster has no proxies")?.address();
            let (mut proxy, mut direct) =
                (open(proxy).map_err(failed)?, open(direct).map_err(failed)?);
            for _ in 0..EXCHANGES {
                let by_proxy = exchange(&mut proxy).map_err(failed)?;
                trips.push(by_proxy - exchange(&mut direct).map_err(failed)?);
            }
        }
    }
    Spread::of(&trips)
}

fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    Ok(stream)
}

/// How many seconds etcd takes to answer.
fn exchange(stream: &mut TcpStream) -> io::Result<f64> {
    let from = Instant::now();
    stream.write_all(REQUEST)?;
    let mut answer = [0; 4_096];
    loop {
        match stream.read(&mut answer)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            length if answer[..length].contains(&END) => return Ok(from.elapsed().as_secs_f64()),
            _ => {}
        }
    }
}
