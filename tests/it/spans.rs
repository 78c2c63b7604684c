//! Spans of a call: their fields, and the links from a waiting call to the one it waits for.

use std::collections::BTreeMap;
use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcd_locked::{LockError, Locks, etcd_locked};
use etcd_locked_tests::{Subscription, subscribe};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Record};
use tracing::{Id, Instrument as _, Span, Subscriber, info_span};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::{LookupSpan, Registry};

use crate::corner::{Corner, connect, take};
use crate::limit::{self, within};

/// Layer that records the spans that were made, with their fields. Clones share the records.
#[derive(Clone, Default)]
pub(crate) struct Spans(Arc<Mutex<Vec<Seen>>>);

/// Span that was made.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    id: Id,
    name: &'static str,
    /// Name of the span around it.
    pub(crate) parent: Option<&'static str>,
    pub(crate) fields: BTreeMap<&'static str, String>,
}

impl Spans {
    /// Makes this layer the subscriber of the current thread.
    pub(crate) fn subscribe(&self) -> Subscription {
        subscribe(Registry::default().with(self.clone()))
    }

    /// Returns the spans of a name, in the order in which they were made.
    pub(crate) fn named(&self, name: &str) -> Vec<Seen> {
        let seen = self.0.lock().expect("not poisoned");
        seen.iter().filter(|it| it.name == name).cloned().collect()
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).expect("a new span");
        let parent = span.parent().map(|it| it.name());
        let mut seen = Seen { id: id.clone(), name: span.name(), parent, fields: BTreeMap::new() };
        attributes.record(&mut seen);
        self.0.lock().expect("not poisoned").push(seen);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut seen = self.0.lock().expect("not poisoned");
        // The id may be reused from an earlier span that has ended.
        let span = seen.iter_mut().rfind(|it| it.id == *id);
        values.record(span.expect("made before"));
    }
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

#[etcd_locked("orders/<id>", locks = &locks)]
async fn ship(locks: Locks, id: u64) -> Result<Option<&'static str>, LockError> {
    let within = Span::current();
    info_span!("packing").in_scope(|| Ok(within.metadata().map(|it| it.name())))
}

#[etcd_locked("orders/<id>", locks = &locks, wait = "none", shared)]
async fn look_up(locks: Locks, id: u64) -> Result<(), LockError> {
    Ok(())
}

#[limit::test]
async fn spans_say_what_was_waited_for_and_held() {
    let spans = Spans::default();
    let _subscriber = spans.subscribe();
    let (corner, [locks]) = Corner::with_engines().await;
    let call = ship(locks.clone(), 7).instrument(info_span!("request"));
    assert_eq!(within("the call", call).await.unwrap(), Some("lock.held"));
    let [wait] = &spans.named("lock.wait")[..] else { panic!("one wait") };
    assert_eq!(wait.parent, Some("request"));
    assert_eq!(wait.fields["lock.template"], "orders/<id>");
    assert_eq!(wait.fields["lock.mode"], "exclusive");
    assert_eq!(wait.fields["lock.outcome"], "granted");
    wait.fields["lock.waited_ms"].parse::<u64>().unwrap();
    assert!(!wait.fields.contains_key("lock.name"), "it may be personal");
    let [held] = &spans.named("lock.held")[..] else { panic!("one hold") };
    assert_eq!(held.parent, Some("request"));
    assert_eq!(held.fields["lock.template"], "orders/<id>");
    assert_eq!(held.fields["lock.outcome"], "done");
    assert!(held.fields["lock.token"].parse::<i64>().unwrap() > 0);
    i64::from_str_radix(&held.fields["lock.lease"], 16).unwrap();
    assert_eq!(spans.named("packing")[0].parent, Some("lock.held"));

    // The name is shown if the configuration says so.
    let named = connect(corner.config().show_names(true)).await;
    let mine = take("a free name", locks.lock("orders/8")).await;
    let refused = within("the call", look_up(named, 8)).await;
    assert_matches!(refused, Err(LockError::Held { .. }));
    let last = spans.named("lock.wait").pop().unwrap();
    assert_eq!(last.fields["lock.name"], "orders/8");
    assert_eq!(last.fields["lock.mode"], "shared");
    assert_eq!(last.fields["lock.outcome"], "held");
    mine.release().await.unwrap();
}

/// Value that makes a span when it is dropped, below the span of this id.
struct Cleaning(Option<Id>);

impl Drop for Cleaning {
    fn drop(&mut self) {
        info_span!(parent: self.0.clone(), "cleaning");
    }
}

/// The gate ends after its body, and so does the span (invariant I11).
#[limit::test]
async fn span_of_a_cancelled_hold_outlives_its_body() {
    let spans = Spans::default();
    let _subscriber = spans.subscribe();
    let (_corner, [locks]) = Corner::with_engines().await;
    let held = take("a free name", locks.lock("orders/7")).await;
    let body = held.hold(async {
        let _cleaning = Cleaning(Span::current().id());
        pending::<()>().await
    });
    assert!(timeout(Duration::ZERO, body).await.is_err());
    assert_eq!(spans.named("cleaning")[0].parent, Some("lock.held"));
}

#[etcd_locked("jobs/<job>", locks = locks, wait = "forever")]
async fn work(locks: &Locks, job: &str, done: &Notify) -> Result<(), LockError> {
    done.notified().await;
    Ok(())
}

/// OpenTelemetry exporter that keeps the ended spans.
#[derive(Debug, Clone, Default)]
struct Ended(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Ended {
    async fn export(&self, spans: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().expect("not poisoned").extend(spans);
        Ok(())
    }
}

#[limit::test]
async fn a_waiters_trace_leads_to_the_holders() {
    let ended = Ended::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(ended.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("tests"));
    let _subscriber = subscribe(Registry::default().with(layer));
    // The link is made after a second. A machine may be slow, so the holder holds longer with each round.
    for seconds in [2, 4, 8] {
        let (corner, [mine, theirs]) = Corner::with_engines().await;
        let (done, done_too) = (Notify::new(), Notify::new());
        done_too.notify_one();
        let rest = async {
            corner.until_contenders("jobs/nightly", 1).await;
            let ends = async {
                corner.until_contenders("jobs/nightly", 2).await;
                sleep(Duration::from_secs(seconds)).await;
                done.notify_one();
            };
            tokio::join!(work(&theirs, "nightly", &done_too), ends).0
        };
        let both = async { tokio::join!(work(&mine, "nightly", &done), rest) };
        let (held, waited) = within("both calls", both).await;
        held.and(waited).unwrap();
        let spans = std::mem::take(&mut *ended.0.lock().unwrap());
        let waits: Vec<_> = spans.iter().filter(|it| it.name == "lock.wait").collect();
        let [holders, waiters] = waits[..] else { panic!("{waits:?}") };
        let trace = holders.span_context.trace_id();
        assert_ne!(waiters.span_context.trace_id(), trace);
        assert!(holders.links.is_empty(), "it has waited for no other");
        let linked: Vec<_> = waiters.links.iter().map(|it| it.span_context.trace_id()).collect();
        if linked == [trace] {
            return;
        }
        assert_eq!(linked, [], "no other trace");
    }
    panic!("the waiter's span has no link");
}
