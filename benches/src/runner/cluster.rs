//! Cluster like those of users: three members and the clients, with half a millisecond each way between any two of them.
//!
//! A proxy in front of each client port and each peer port adds the delay. All three members have their data on the same disk.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use etcd_locked_devkit::Cluster;

use super::figures::{Spread, time};
use super::{note, server};
use crate::Result;

const MEMBERS: usize = 3;
/// Delay each way, as between two zones of a region.
const DELAY: Duration = Duration::from_micros(500);
/// Exchanges through each proxy in a measurement.
const EXCHANGES: usize = 50;
/// Request to which both ports of etcd respond without another member.
const REQUEST: &[u8] = b"GET /version HTTP/1.1\r\nHost: etcd\r\n\r\n";
/// Last byte of that response, which is one JSON object without nested ones.
const END: u8 = b'}';

/// Starts it, and notes what the proxies add.
pub(crate) fn start() -> Result<Cluster> {
    let cluster = Cluster::start_with(MEMBERS, server::setup())?;
    let delay = |delay| {
        let members = cluster.members().iter();
        let proxies = members.flat_map(|it| [it.client_proxy(), it.peer_proxy()]);
        proxies.flatten().for_each(|proxy| proxy.delay(delay));
    };
    delay(DELAY);
    // The half millisecond includes the time that the proxies themselves take.
    let trip = Duration::from_secs_f64(added(&cluster)?.median.max(0.0));
    delay(DELAY.saturating_sub(trip.saturating_sub(DELAY * 2) / 2));
    let added = added(&cluster)?.shown(time);
    note(format_args!("the proxies add {added} to a round trip"));
    Ok(cluster)
}

/// Returns how many seconds longer an exchange through a proxy takes than a direct one.
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

/// Returns how many seconds etcd takes to respond.
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
