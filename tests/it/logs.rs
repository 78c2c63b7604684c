//! Warnings and errors that the engines of this process log about one etcd, told apart by its address.

use std::fmt::{self, Write};
use std::sync::{Mutex, OnceLock, PoisonError};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Record};
use tracing::{Event, Id, Level, Metadata, Subscriber};

/// Lines of the whole process.
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The subscriber of the process.
struct Collector;

/// Begins to collect lines; it must come before what is to be collected.
pub(crate) fn collect() {
    static COLLECTS: OnceLock<()> = OnceLock::new();
    COLLECTS.get_or_init(|| {
        tracing::subscriber::set_global_default(Collector).expect("the only one of this process");
    });
}

/// Returns the lines that name this address.
pub(crate) fn about(address: &str) -> Vec<String> {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let about = lines.iter().filter(|line| line.contains(address));
    about.cloned().collect()
}

/// Returns the lines of the whole process.
pub(crate) fn all() -> Vec<String> {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    lines.clone()
}

/// A line as it is put together.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
