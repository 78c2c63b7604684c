//! A network that misbehaves on request: a TCP proxy between an engine and etcd.

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

/// One way through the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the engine to etcd.
    Requests,
    /// From etcd to the engine.
    Answers,
}

/// What the network does at the moment.
#[derive(Debug, Clone, Default)]
struct Weather {
    /// Connections up to this number let no requests through; they wait in the proxy.
    requests_frozen: u64,
    /// The same for answers.
    answers_frozen: u64,
    /// Connections up to this number are closed.
    cut: u64,
    /// What every chunk waits.
    delay: Duration,
    /// How many connections there have been.
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
    /// A proxy to `host:port`, in fair weather.
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

    /// What a client is configured with.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Lets nothing through this way, neither on old connections nor on new ones; what is sent waits here.
    pub(crate) fn freeze(&self, way: Way) {
        self.set_frozen(way, |_| u64::MAX);
    }

    /// Lets nothing through this way on the connections there are; new ones are not concerned.
    pub(crate) fn freeze_existing(&self, way: Way) {
        self.set_frozen(way, |connections| connections);
    }

    /// Lets everything through again, beginning with what has been waiting.
    pub(crate) fn thaw(&self) {
        self.set_frozen(Way::Requests, |_| 0);
        self.set_frozen(Way::Answers, |_| 0);
    }

    /// Closes all connections; what was waiting in them is lost. New ones are accepted.
    pub(crate) fn cut(&self) {
        self.weather
            .send_modify(|weather| weather.cut = weather.connections);
    }

    /// Makes every chunk wait, each way.
    pub(crate) fn delay(&self, delay: Duration) {
        self.weather.send_modify(|weather| weather.delay = delay);
    }

    /// Refuses new connections; the old ones go on.
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

    /// Awaits that everything that was waiting has been passed on.
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
            // Each way ends by itself: a client that hangs up does not take back what it has sent.
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
            passed = pass(&buffer[..length], &mut to, way, number, weather.subscribe()) => passed,
            _ = now.wait_for(|weather| number <= weather.cut) => Err(io::ErrorKind::ConnectionReset.into()),
        };
        weather.send_modify(|weather| weather.in_flight -= 1);
        if passed.is_err() || length == 0 {
            return;
        }
    }
}

/// Passes one chunk on when the weather lets it through; an empty one says that its side has hung up.
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
