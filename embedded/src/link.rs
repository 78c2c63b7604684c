//! Link between clients and an embedded etcd: a network path with delays, cuts and faults.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions, Error};
use tokio::sync::watch;
use tonic::Status;
use tonic::body::Body;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service};

use crate::clock::Clock;
use crate::paced::Paced;
use crate::router::{Request, Responding, Response, Router};

/// Fault of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// etcd refuses the call with this code and message; nothing is applied.
    Refused(tonic::Code, String),
    /// etcd applies the call, but the connection breaks before the response arrives.
    AnswerLost,
    /// The connection breaks before the call arrives: nothing is applied, but to the client the outcome is ambiguous.
    RequestLost,
}

/// Network path to an [`Etcd`](crate::Etcd), with its own faults. Clones are handles on the same path, and all clients made
/// from it share its faults.
#[derive(Debug, Clone)]
pub struct Link {
    way: Arc<Way>,
    router: Router,
}

impl Link {
    pub(crate) fn new(router: Router, clock: Arc<dyn Clock>) -> Self {
        Self {
            way: Arc::new(Way {
                weather: watch::Sender::new(Weather::default()),
                faults: Mutex::default(),
                clock,
            }),
            router,
        }
    }

    /// Makes a client whose calls all take this path.
    ///
    /// # Errors
    ///
    /// `options` name a user, and an embedded etcd does not have users.
    pub async fn client(&self, options: Option<ConnectOptions>) -> Result<Client, Error> {
        let channel = Channel::Custom(BoxCloneSyncService::new(self.clone()));
        Client::from_channel(channel, options).await
    }

    /// Stops everything in transit, in both directions: calls hang, streams are silent. As with TCP, nothing in transit is
    /// lost, unless the caller gives up meanwhile.
    pub fn cut(&self) {
        self.way.weather.send_modify(|weather| weather.cut = true);
    }

    /// Lets everything through again, beginning with what was held back.
    pub fn heal(&self) {
        self.way.weather.send_modify(|weather| weather.cut = false);
    }

    /// Takes the other end down, as if nothing listened there: new calls fail unsent. Calls and streams in progress break.
    pub fn down(&self) {
        self.way.weather.send_modify(|weather| {
            weather.breaks += u64::from(!weather.down);
            weather.down = true;
        });
    }

    /// Brings the other end back: new calls work. Broken calls and streams stay broken.
    pub fn up(&self) {
        self.way.weather.send_modify(|weather| weather.down = false);
    }

    /// Holds back keep-alives (or lets them through again): leases expire while everything else works.
    pub fn freeze_keepalives(&self, frozen: bool) {
        self.way.weather.send_modify(|weather| weather.frozen = frozen);
    }

    /// Sets the delay of all later traffic, each way; zero at first.
    pub fn delay(&self, each_way: Duration) {
        self.way.weather.send_modify(|weather| weather.delay = each_way);
    }

    /// Sets the fault of the next call; streams (watch, keep-alive) do not count. Several faults apply to calls in order.
    pub fn fail_next(&self, fault: Fault) {
        self.way.lock_faults().push_back(fault);
    }
}

/// Current condition of a link.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weather {
    cut: bool,
    down: bool,
    /// Number of times that the link went down; each breaks what is in transit.
    breaks: u64,
    frozen: bool,
    pub(crate) delay: Duration,
}

impl Weather {
    /// Returns true if a frame of a stream must wait.
    pub(crate) fn holds(&self, keepalive: bool) -> bool {
        self.cut || keepalive && self.frozen
    }
}

pub(crate) struct Way {
    pub(crate) weather: watch::Sender<Weather>,
    faults: Mutex<VecDeque<Fault>>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Way").field("weather", &*self.weather.borrow()).finish_non_exhaustive()
    }
}

impl Way {
    fn lock_faults(&self) -> std::sync::MutexGuard<'_, VecDeque<Fault>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a call or stream, unless the link is down. Returns the number of breaks so far: it breaks if that changes.
    pub(crate) fn set_out(&self) -> Result<u64, Status> {
        let weather = self.weather.borrow();
        if weather.down {
            // The client's message for a port where nothing listens.
            let refused = "tcp connect error: connection refused: the link is down";
            return Err(Status::unavailable(refused));
        }
        Ok(weather.breaks)
    }

    /// Travels one way, for a call that started after this many breaks.
    async fn travel(&self, breaks: u64) -> Result<(), BoxError> {
        let weather = *self.weather.borrow();
        if weather.breaks == breaks && weather.delay > Duration::ZERO {
            let there = self.clock.now().saturating_add(weather.delay);
            tokio::select! {
                () = self.clock.sleep_until(there) => {}
                () = self.broken(breaks) => {}
            }
        }
        let mut weather = *self.weather.borrow();
        if weather.breaks == breaks && weather.cut {
            let open = |now: &Weather| now.breaks != breaks || !now.cut;
            // This struct owns the sender, so it cannot be closed.
            if let Ok(now) = self.weather.subscribe().wait_for(open).await {
                weather = *now;
            }
        }
        match weather.breaks == breaks {
            true => Ok(()),
            false => Err(broken()),
        }
    }

    /// Waits until a call that started after this many breaks is broken.
    pub(crate) async fn broken(&self, breaks: u64) {
        let mut weather = self.weather.subscribe();
        let _ = weather.wait_for(|now| now.breaks != breaks).await; // this struct owns the sender
    }
}

impl Service<Request> for Link {
    type Response = Response;
    type Error = BoxError;
    type Future = Responding<BoxError>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let (way, router) = (Arc::clone(&self.way), self.router.clone());
        match request.uri().path() {
            "/etcdserverpb.Watch/Watch" => Box::pin(stream(way, router, request, false)),
            "/etcdserverpb.Lease/LeaseKeepAlive" => Box::pin(stream(way, router, request, true)),
            _ => Box::pin(unary(way, router, request)),
        }
    }
}

async fn unary(way: Arc<Way>, mut router: Router, request: Request) -> Result<Response, BoxError> {
    let breaks = way.set_out()?;
    let fault = way.lock_faults().pop_front();
    way.travel(breaks).await?;
    let answer = match &fault {
        None | Some(Fault::AnswerLost) => router.call(request).await?,
        Some(Fault::Refused(code, message)) => Status::new(*code, message).into_http(),
        Some(Fault::RequestLost) => return Err(broken()),
    };
    way.travel(breaks).await?;
    match fault {
        Some(Fault::AnswerLost) => Err(broken()),
        _ => Ok(answer),
    }
}

async fn stream(
    way: Arc<Way>,
    mut router: Router,
    request: Request,
    keepalive: bool,
) -> Result<Response, BoxError> {
    let breaks = way.set_out()?;
    way.travel(breaks).await?;
    let there = Arc::clone(&way);
    let request = request.map(|body| Body::new(Paced::new(body, there, keepalive, breaks)));
    let answer = router.call(request).await?;
    way.travel(breaks).await?;
    Ok(answer.map(|body| Body::new(Paced::new(body, way, keepalive, breaks))))
}

/// Makes the error of a broken connection: to the client, the outcome is ambiguous.
fn broken() -> BoxError {
    io::Error::new(io::ErrorKind::ConnectionReset, "connection reset before the response arrived")
        .into()
}
