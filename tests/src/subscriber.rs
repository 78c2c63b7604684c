//! Subscriber of a thread: it gets the spans and events of this thread, whatever other threads do.

use tracing::subscriber::{DefaultGuard, NoSubscriber, set_default};
use tracing::{Dispatch, Subscriber};

/// Ends a [`subscribe`] when dropped.
#[must_use = "dropped, it ends the subscription"]
#[derive(Debug)]
pub struct Subscription {
    _default: DefaultGuard,
    _second: Dispatch,
}

/// Makes it the subscriber of this thread.
///
/// Where tracing knows one subscriber, it asks the thread that comes first to a span or an event whether there is one for it. A
/// thread that has none switches it off for all. Where it knows two, it asks both: so there is a second one, which no thread uses.
pub fn subscribe(subscriber: impl Subscriber + Send + Sync + 'static) -> Subscription {
    Subscription { _second: Dispatch::new(NoSubscriber::new()), _default: set_default(subscriber) }
}
