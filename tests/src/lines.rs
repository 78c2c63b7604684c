//! Log lines: events of `tracing` as text.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Record};
use tracing::{Event, Id, Level, Metadata, Subscriber};

/// Subscriber that passes each event to a function, as `<LEVEL> <message> <field>=<value>…`.
#[derive(Debug, Clone)]
pub struct Lines<F> {
    target: &'static str,
    level: LevelFilter,
    take: F,
}

impl<F: Fn(Level, String)> Lines<F> {
    /// Makes a subscriber for the events whose target begins with this, up to this level.
    pub fn new(target: &'static str, level: LevelFilter, take: F) -> Self {
        Self { target, level, take }
    }
}

impl<F: Fn(Level, String) + 'static> Subscriber for Lines<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && *metadata.level() <= self.level
            && metadata.target().starts_with(self.target)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        let level = *event.metadata().level();
        let mut line = Line(level.to_string());
        event.record(&mut line);
        (self.take)(level, line.0);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Line that is being put together.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
