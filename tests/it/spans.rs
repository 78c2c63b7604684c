//! Subscriber that records which `tracing` spans there were, with their fields, and which are entered.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use etcd_locked_tests::{Subscription, subscribe};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Record};
use tracing::{Event, Id, Metadata, Subscriber};
use tracing_core::span::Current;

/// The spans of one test. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Spans {
    known: Arc<Mutex<Vec<Seen>>>,
    entered: Arc<Mutex<Vec<Id>>>,
}

/// A span that was made.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    metadata: &'static Metadata<'static>,
    /// The name of the span around it.
    pub(crate) parent: Option<&'static str>,
    pub(crate) fields: BTreeMap<&'static str, String>,
}

impl Spans {
    /// Makes it the subscriber of this thread.
    pub(crate) fn subscribe(&self) -> Subscription {
        subscribe(self.clone())
    }

    /// The spans of a name, in the order in which they were made.
    pub(crate) fn named(&self, name: &str) -> Vec<Seen> {
        let known = self.known.lock().expect("not poisoned");
        let of_name = known.iter().filter(|it| it.metadata.name() == name);
        of_name.cloned().collect()
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

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span()
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let parent = self.current_span();
        let mut seen = Seen {
            metadata: span.metadata(),
            parent: parent.metadata().map(Metadata::name),
            fields: BTreeMap::new(),
        };
        span.record(&mut seen);
        let mut known = self.known.lock().expect("not poisoned");
        known.push(seen);
        Id::from_u64(known.len() as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut known = self.known.lock().expect("not poisoned");
        values.record(&mut known[span.into_u64() as usize - 1]);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, span: &Id) {
        self.entered.lock().expect("not poisoned").push(span.clone());
    }

    fn exit(&self, span: &Id) {
        let mut entered = self.entered.lock().expect("not poisoned");
        let at = entered.iter().rposition(|it| it == span);
        entered.remove(at.expect("entered before"));
    }

    fn current_span(&self) -> Current {
        match self.entered.lock().expect("not poisoned").last() {
            None => Current::none(),
            Some(span) => {
                let known = self.known.lock().expect("not poisoned");
                let metadata = known[span.into_u64() as usize - 1].metadata;
                Current::new(span.clone(), metadata)
            }
        }
    }
}
