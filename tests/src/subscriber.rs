//! Subscriber of one thread: it gets the spans and events of its thread, whatever other threads do.

use tracing::subscriber::{DefaultGuard, NoSubscriber, set_default};
use tracing::{Dispatch, Subscriber};

/// Ends a [`subscribe`] when dropped.
#[must_use = "dropped, it ends the subscription"]
#[derive(Debug)]
pub struct Subscription {
    _default: DefaultGuard,
    _second: Dispatch,
}

/// Makes this the subscriber of the current thread.
///
/// If tracing knows one subscriber, the first thread that reaches a span or event decides for all threads whether it is enabled; a
/// thread without a subscriber disables it. If it knows two, it asks both. So this also makes a second one, which no thread uses.
pub fn subscribe(subscriber: impl Subscriber + Send + Sync + 'static) -> Subscription {
    Subscription { _second: Dispatch::new(NoSubscriber::new()), _default: set_default(subscriber) }
}
