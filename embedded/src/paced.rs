//! One direction of a stream on a link: its frames arrive late, or not while the link is cut.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body as _, Frame};
use tonic::Status;
use tonic::body::Body;

use crate::clock::Sleep;
use crate::link::Way;

/// `None`: the end.
type Sent = Option<Result<Frame<<Body as http_body::Body>::Data>, Status>>;

/// So many frames may be on their way; the sender waits then.
const MOST_ON_THEIR_WAY: usize = 1_024;

const BROKEN: &str = "connection reset: the link went down";

pub(crate) struct Paced {
    body: Body,
    way: Arc<Way>,
    keepalive: bool,
    /// Until the way breaks; `None`: it has.
    breaking: Option<Sleep>,
    /// With the time at which each arrives.
    frames: VecDeque<(Duration, Sent)>,
    /// Until then the first frame cannot arrive, or (no time) until the weather is better.
    obstacle: Option<(Option<Duration>, Sleep)>,
    ended: bool,
}

impl Paced {
    /// `breaks`: how many there had been on the way when the stream set out.
    pub(crate) fn new(body: Body, way: Arc<Way>, keepalive: bool, breaks: u64) -> Self {
        let breaking = Arc::clone(&way);
        Self {
            breaking: Some(Box::pin(async move { breaking.broken(breaks).await })),
            body,
            way,
            keepalive,
            frames: VecDeque::new(),
            obstacle: None,
            ended: false,
        }
    }

    /// Takes what the sender has sent.
    fn take(&mut self, context: &mut Context<'_>) {
        while !self.ended && self.frames.len() < MOST_ON_THEIR_WAY {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(frame) => {
                    self.ended = frame.is_none();
                    let delay = self.way.weather.borrow().delay;
                    let at = self.way.clock.now().saturating_add(delay);
                    self.frames.push_back((at, frame));
                }
                Poll::Pending => return,
            }
        }
    }

    /// What the first frame waits for; `None`: nothing.
    fn in_the_way(&self) -> Option<Option<Duration>> {
        let (at, _) = self.frames.front()?;
        if self.way.weather.borrow().holds(self.keepalive) {
            return Some(None);
        }
        (*at > self.way.clock.now()).then_some(Some(*at))
    }
}

impl http_body::Body for Paced {
    type Data = <Body as http_body::Body>::Data;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Sent> {
        let this = self.get_mut();
        let Some(breaking) = &mut this.breaking else {
            return Poll::Ready(None);
        };
        if breaking.as_mut().poll(context).is_ready() {
            this.breaking = None;
            this.body = Body::empty(); // the other end sees it at once
            return Poll::Ready(Some(Err(Status::unavailable(BROKEN))));
        }
        loop {
            this.take(context);
            let Some(obstacle) = this.in_the_way() else {
                this.obstacle = None;
                return match this.frames.pop_front() {
                    Some((_, frame)) => Poll::Ready(frame),
                    None if this.ended => Poll::Ready(None),
                    None => Poll::Pending,
                };
            };
            let waiting = match &mut this.obstacle {
                Some((known, waiting)) if *known == obstacle => waiting,
                other => {
                    let (way, keepalive) = (Arc::clone(&this.way), this.keepalive);
                    let waiting = match obstacle {
                        Some(at) => way.clock.sleep_until(at),
                        None => Box::pin(async move {
                            let mut weather = way.weather.subscribe();
                            let _ = weather.wait_for(|now| !now.holds(keepalive)).await;
                        }),
                    };
                    &mut other.insert((obstacle, waiting)).1
                }
            };
            if waiting.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            this.obstacle = None;
        }
    }
}
