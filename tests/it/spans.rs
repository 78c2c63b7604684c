//! Subscriber that records which `tracing` spans are entered.

use std::sync::Mutex;

use tracing::span::{Attributes, Record};
use tracing::{Event, Id, Metadata, Subscriber};
use tracing_core::span::Current;

/// The spans of one test.
#[derive(Default)]
pub(crate) struct Spans {
    known: Mutex<Vec<&'static Metadata<'static>>>,
    entered: Mutex<Vec<Id>>,
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span()
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut known = self.known.lock().expect("not poisoned");
        known.push(span.metadata());
        Id::from_u64(known.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, span: &Id) {
        self.entered
            .lock()
            .expect("not poisoned")
            .push(span.clone());
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
                let metadata = known[span.into_u64() as usize - 1];
                Current::new(span.clone(), metadata)
            }
        }
    }
}
