//! Worker process whose spans are exported as OpenTelemetry has them.
//!
//! | command | output |
//! |---|---|
//! | `work <job>` | `held` once it has the lock |
//! | `done` | `released` |
//!
//! Each span that has ended is output: `span <name> <trace> <links>`, with the traces that it is linked to, separated by commas.

use std::fmt;
use std::sync::Arc;

use etcd_locked::{LockError, etcd_locked};
use etcd_locked_tests::commands;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tokio::sync::Notify;
use tracing_subscriber::layer::SubscriberExt as _;

#[tokio::main]
async fn main() {
    let provider = SdkTracerProvider::builder().with_simple_exporter(Lines).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("worker"));
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))
        .expect("the only subscriber");
    let mut commands = commands();
    let done = Arc::new(Notify::new());
    while let Some(command) = commands.recv().await {
        match command.split_once(' ') {
            Some(("work", job)) => {
                let (job, done) = (job.to_owned(), done.clone());
                tokio::spawn(async move {
                    match work(&job, &done).await {
                        Ok(()) => println!("released"),
                        Err(error) => println!("failed {job} {error}"),
                    }
                });
            }
            _ => done.notify_one(),
        }
    }
}

#[etcd_locked("jobs/<job>", wait = "forever")]
async fn work(job: &str, done: &Notify) -> Result<(), LockError> {
    println!("held");
    done.notified().await;
    Ok(())
}

/// Exporter of spans to standard output.
struct Lines;

impl SpanExporter for Lines {
    async fn export(&self, spans: Vec<SpanData>) -> OTelSdkResult {
        for span in spans {
            let traces = span.links.iter().map(|link| link.span_context.trace_id());
            let traces: Vec<String> = traces.map(|trace| trace.to_string()).collect();
            let trace = span.span_context.trace_id();
            println!("span {} {trace} {}", span.name, traces.join(","));
        }
        Ok(())
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lines")
    }
}
