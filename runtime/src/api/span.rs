//! Spans of a call: `lock.wait` until the call is granted or refused, `lock.held` around its body.
//!
//! Both are children of the caller's span. Without a subscriber that enables them, no span is created and no clock is read.

use std::sync::Arc;

use tracing::field::Empty;
use tracing::{Span, info_span};

use crate::clock::Moment;
use crate::engine::{Engine, Mode, OwnedLocks};
use crate::values::{LockError, Name, Sharing, templates};

/// Span of a call's wait; empty if no subscriber enables it.
#[derive(Debug)]
pub(crate) struct WaitSpan(Option<Box<Open>>);

#[derive(Debug)]
struct Open {
    /// In an `Arc`, so that a late link can refer to it without keeping it open.
    span: Arc<Span>,
    since: Moment,
    /// True once the owner was requested, which happens once.
    #[cfg(feature = "opentelemetry")]
    links: bool,
}

impl WaitSpan {
    pub(crate) fn begin<'a>(
        engine: &Engine,
        templates: Option<&str>,
        names: impl Iterator<Item = &'a Name>,
        mode: Mode,
    ) -> Self {
        let span = info_span!(
            "lock.wait",
            lock.template = templates,
            lock.name = shown(engine, names),
            lock.mode = Sharing::of(mode).word(),
            lock.outcome = Empty,
            lock.waited_ms = Empty,
        );
        if span.is_disabled() {
            return Self(None);
        }
        Self(Some(Box::new(Open {
            span: Arc::new(span),
            since: engine.now(),
            #[cfg(feature = "opentelemetry")]
            links: false,
        })))
    }

    /// Returns its place in a trace, for the call's record.
    pub(crate) fn trace(&self) -> Option<String> {
        #[cfg(feature = "opentelemetry")]
        return super::link::trace_of(&self.0.as_ref()?.span);
        #[cfg(not(feature = "opentelemetry"))]
        None
    }

    /// Links the call to the trace of its first name's owner, if it still waits in about a second.
    #[cfg(feature = "opentelemetry")]
    pub(crate) fn waits(&mut self, engine: &Engine, names: &[Name]) {
        if let Some(open) = &mut self.0
            && !std::mem::replace(&mut open.links, true)
        {
            let span: std::sync::Weak<Span> = Arc::downgrade(&open.span);
            let first = names.first().and_then(Name::text).unwrap_or_default();
            engine.show_owner(&[&engine.config().prefix, first].concat().into(), span);
        }
    }

    pub(crate) fn answered(&self, refused: Option<&LockError>, now: impl FnOnce() -> Moment) {
        #[cfg(feature = "opentelemetry")]
        if let (Some(open), Some(holder)) = (&self.0, refused.and_then(LockError::holder)) {
            super::link::link(&open.span, holder);
        }
        self.ends(LockError::outcome(refused), now);
    }

    pub(crate) fn ends(&self, outcome: &'static str, now: impl FnOnce() -> Moment) {
        if let Some(open) = &self.0 {
            let waited = now() - open.since;
            let millis = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
            open.span.record("lock.outcome", outcome);
            open.span.record("lock.waited_ms", millis);
        }
    }
}

/// Creates the span around a body, below the current span.
pub(crate) fn held(locks: &OwnedLocks, engine: &Engine) -> Span {
    let names = || locks.locks().map(|lock| &lock.name);
    info_span!(
        "lock.held",
        lock.template = templates(names()).as_deref(),
        lock.name = shown(engine, names()),
        lock.mode = Sharing::of(locks.first.mode).word(),
        lock.token = locks.first.token.as_i64(),
        lock.lease = locks.first.lease(),
        lock.outcome = Empty,
    )
}

pub(crate) fn ended(span: &Span, how: Option<&LockError>) {
    let outcome = match how {
        None => "done",
        Some(LockError::HoldLimit { .. }) => "hold_limit",
        Some(LockError::ShuttingDown) => "shutting_down",
        Some(_) => "lost",
    };
    span.record("lock.outcome", outcome);
}

/// Returns the names with their values, if spans show them.
fn shown<'a>(engine: &Engine, names: impl Iterator<Item = &'a Name>) -> Option<String> {
    let all = || names.filter_map(Name::text).collect::<Vec<_>>().join(", ");
    engine.config().show_names.then(all)
}
