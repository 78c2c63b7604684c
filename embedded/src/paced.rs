//! Paced stream: one direction of a stream on a link. Its frames arrive late, or wait while the link is cut.

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

/// Frame of the stream; `None` is its end.
type Sent = Option<Result<Frame<<Body as http_body::Body>::Data>, Status>>;

/// Limit of frames in transit; at the limit the sender waits.
const MOST_UNDER_WAY: usize = 1_024;

const BROKEN: &str = "connection reset: the link went down";

pub(crate) struct Paced {
    body: Body,
    way: Arc<Way>,
    keepalive: bool,
    /// Future that ends when the path breaks; `None` after that.
    breaking: Option<Sleep>,
    /// Frames in transit, each with its time of arrival.
    frames: VecDeque<(Duration, Sent)>,
    /// What the first frame waits for: a time, or without a time, until the link lets frames through again.
    obstacle: Option<(Option<Duration>, Sleep)>,
    ended: bool,
}

impl Paced {
    /// Paces `body`. `breaks` is the path's number of breaks when the stream started.
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

    /// Takes in the frames that the sender has sent.
    fn take(&mut self, context: &mut Context<'_>) {
        while !self.ended && self.frames.len() < MOST_UNDER_WAY {
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

    /// Returns what the first frame waits for: a time, or `Some(None)` until the link lets frames through again. Returns `None`
    /// if it may arrive.
    fn next_obstacle(&self) -> Option<Option<Duration>> {
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
            let Some(obstacle) = this.next_obstacle() else {
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
