//! Worker of row B20: makes a batch of annotated calls on the embedded etcd for each order, and reports the time per call.
//!
//! Its protocol is that of `benches/src/worker`; `--peer` says whether spans and metrics are enabled, and what observes them.

use std::error::Error;
use std::io::stdin;
use std::time::{Duration, Instant};

use etcd_locked::{Config, LockError, etcd_locked};
use tokio::runtime::Builder;
use tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Calls per batch.
const CALLS: u32 = 1_000;

#[etcd_locked("orders/<id>")]
async fn ship(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [_, peer] = arguments.as_slice() else {
        return Err("usage: telemetry --peer bare|unobserved|observed".into());
    };
    let has_both = cfg!(feature = "observed") && STATIC_MAX_LEVEL >= LevelFilter::INFO;
    let has_neither = !cfg!(feature = "observed") && STATIC_MAX_LEVEL == LevelFilter::OFF;
    match peer.as_str() {
        "bare" if has_neither => {}
        "unobserved" if has_both => {}
        "observed" if has_both => observe()?,
        _ => return Err(format!("this program was not built for `{peer}`").into()),
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(etcd_locked::init(Config::embedded()))?;
    // Connects, and fills caches.
    runtime.block_on(batch())?;
    println!("ready");
    for order in stdin().lines() {
        order?;
        let took = runtime.block_on(batch())?;
        let micros = took.as_secs_f64() * 1e6 / f64::from(CALLS);
        println!("{{\"micros\":{micros}}}");
    }
    runtime.block_on(etcd_locked::shutdown(Duration::from_secs(5)));
    Ok(())
}

async fn batch() -> Result<Duration, LockError> {
    let from = Instant::now();
    for _ in 0..CALLS {
        ship(7).await?;
    }
    Ok(from.elapsed())
}

/// Sends every span, event and metric to a subscriber and a recorder that do nothing.
fn observe() -> Result<(), Box<dyn Error>> {
    tracing::subscriber::set_global_default(Idle)?;
    #[cfg(feature = "observed")]
    metrics::set_global_recorder(metrics::NoopRecorder).map_err(|error| error.to_string())?;
    Ok(())
}

/// Subscriber that enables what a service in production does, `INFO` and above, and does nothing with it.
struct Idle;

impl Subscriber for Idle {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::INFO)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
