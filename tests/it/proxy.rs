//! TCP proxy between an engine and etcd that freezes, delays and cuts connections on request.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::etcd::free_port;

/// A direction through the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the engine to etcd.
    Requests,
    /// From etcd to the engine.
    Answers,
}

/// The faults of the network at the moment.
#[derive(Debug, Clone, Default)]
struct Weather {
    /// The number up to which connections pass no requests on; requests wait in the proxy.
    requests_frozen: u64,
    /// The number up to which connections pass no answers on.
    answers_frozen: u64,
    /// The number up to which connections are closed.
    cut: u64,
    /// The time that every chunk waits.
    delay: Duration,
    /// The number of connections so far.
    connections: u64,
    /// Chunks read from one side and not yet written to the other.
    in_flight: u64,
}

/// A proxy for one server; closed when dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    target: String,
    weather: watch::Sender<Weather>,
    accepting: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy to `host:port`, without faults.
    pub(crate) async fn start(target: impl Into<String>) -> Proxy {
        let mut proxy = Proxy {
            address: SocketAddr::from(([127, 0, 0, 1], free_port())),
            target: target.into(),
            weather: watch::Sender::new(Weather::default()),
            accepting: None,
        };
        proxy.accept_again().await;
        proxy
    }

    /// Returns the URL for clients.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Passes nothing on in this direction, on old and new connections alike; the data waits in the proxy.
    pub(crate) fn freeze(&self, way: Way) {
        self.set_frozen(way, |_| u64::MAX);
    }

    /// Passes nothing on in this direction on present connections; new ones are not affected.
    pub(crate) fn freeze_existing(&self, way: Way) {
        self.set_frozen(way, |connections| connections);
    }

    /// Passes everything on again, beginning with the data that has been waiting.
    pub(crate) fn thaw(&self) {
        self.set_frozen(Way::Requests, |_| 0);
        self.set_frozen(Way::Answers, |_| 0);
    }

    /// Closes all connections, so that the data waiting in them is lost. The proxy accepts new ones.
    pub(crate) fn cut(&self) {
        self.weather
            .send_modify(|weather| weather.cut = weather.connections);
    }

    /// Delays every chunk, in both directions.
    pub(crate) fn delay(&self, delay: Duration) {
        self.weather.send_modify(|weather| weather.delay = delay);
    }

    /// Refuses new connections; present ones go on.
    pub(crate) async fn refuse(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
            let _ = accepting.await;
        }
    }

    /// Accepts connections again.
    pub(crate) async fn accept_again(&mut self) {
        let listener = TcpListener::bind(self.address)
            .await
            .expect("the proxy's port is free");
        self.accepting = Some(tokio::spawn(accept(
            listener,
            self.target.clone(),
            self.weather.clone(),
        )));
    }

    /// Awaits that all waiting data has been passed on.
    pub(crate) async fn until_drained(&self) {
        let mut weather = self.weather.subscribe();
        weather
            .wait_for(|weather| weather.in_flight == 0)
            .await
            .expect("the proxy lives");
    }

    fn set_frozen(&self, way: Way, up_to: impl Fn(u64) -> u64) {
        self.weather.send_modify(|weather| {
            let up_to = up_to(weather.connections);
            match way {
                Way::Requests => weather.requests_frozen = up_to,
                Way::Answers => weather.answers_frozen = up_to,
            }
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
        }
        self.weather.send_modify(|weather| weather.cut = u64::MAX);
    }
}

async fn accept(listener: TcpListener, target: String, weather: watch::Sender<Weather>) {
    while let Ok((near, _)) = listener.accept().await {
        let (target, weather) = (target.clone(), weather.clone());
        tokio::spawn(async move {
            let Ok(far) = TcpStream::connect(target).await else {
                return;
            };
            let _ = (near.set_nodelay(true), far.set_nodelay(true));
            let mut number = 0;
            weather.send_modify(|weather| {
                weather.connections += 1;
                number = weather.connections;
            });
            let (near_read, near_write) = near.into_split();
            let (far_read, far_write) = far.into_split();
            // Each direction ends by itself: a client that hangs up does not take back the data it has sent.
            tokio::spawn(pump(
                near_read,
                far_write,
                Way::Requests,
                number,
                weather.clone(),
            ));
            tokio::spawn(pump(far_read, near_write, Way::Answers, number, weather));
        });
    }
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    way: Way,
    number: u64,
    weather: watch::Sender<Weather>,
) {
    let mut now = weather.subscribe();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            _ = now.wait_for(|weather| number <= weather.cut) => return,
        };
        let Ok(length) = read else { return };
        weather.send_modify(|weather| weather.in_flight += 1);
        let passed = tokio::select! {
            biased; // what waits is lost by a cut, also if it could be passed on the next moment
            _ = now.wait_for(|weather| number <= weather.cut) => Err(io::ErrorKind::ConnectionReset.into()),
            passed = pass(&buffer[..length], &mut to, way, number, weather.subscribe()) => passed,
        };
        weather.send_modify(|weather| weather.in_flight -= 1);
        if passed.is_err() || length == 0 {
            return;
        }
    }
}

/// Passes one chunk on when no fault holds it back; an empty chunk means that its side has hung up.
async fn pass(
    chunk: &[u8],
    to: &mut OwnedWriteHalf,
    way: Way,
    number: u64,
    mut now: watch::Receiver<Weather>,
) -> io::Result<()> {
    let delay = now.borrow().delay;
    if !delay.is_zero() {
        sleep(delay).await;
    }
    let open = now.wait_for(|weather| match way {
        Way::Requests => number > weather.requests_frozen,
        Way::Answers => number > weather.answers_frozen,
    });
    if open.await.is_err() {
        return Err(io::ErrorKind::ConnectionReset.into());
    }
    if chunk.is_empty() {
        to.shutdown().await
    } else {
        to.write_all(chunk).await
    }
}
