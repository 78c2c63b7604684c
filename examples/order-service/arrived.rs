//! Arrival time of a request, as an argument of its handler.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

/// The arrival time, extracted before the handler is called, so before it waits for its lock.
pub(crate) struct Arrived(Instant);

impl Arrived {
    pub(crate) fn ago(&self) -> Duration {
        self.0.elapsed()
    }
}

impl<S: Sync> FromRequestParts<S> for Arrived {
    type Rejection = Infallible;

    async fn from_request_parts(_: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(Instant::now()))
    }
}
