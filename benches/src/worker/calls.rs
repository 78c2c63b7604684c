//! Calls as work: every task locks and unlocks, one call after another.

use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use tokio::task::JoinSet;

use super::peer::Peer;
use super::spec::Spec;
use super::tally::{Tally, Window};
use super::usage::processor_within;
use super::witness::Witness;
use super::{Fault, serve};

pub(super) async fn work(spec: Spec) -> Result<(), Fault> {
    let witness = Arc::new(Witness::new(spec.names, spec.witness.as_deref())?);
    let peers = Peer::of_tasks(&spec).await?;
    serve(async |begin| {
        let window = Window::new(begin, spec.window);
        let mut tasks = JoinSet::new();
        for (task, peer) in (0..).zip(&peers) {
            // Each task uses its own names in turn: only one, if there are as many names as tasks.
            let (every, all) = (spec.tasks, spec.names);
            let names = (0..).map(move |call| (task + call * every) % all);
            tasks.spawn(repeat(peer.clone(), names, witness.clone(), window));
        }
        let used = processor_within(window).await;
        let mut sum = Tally::default();
        while let Some(tally) = tasks.join_next().await {
            sum.add(&tally??);
        }
        let (seen, changes) = witness.take();
        Ok(json!({
            "count": sum.count,
            "total": sum.total,
            "latency": sum.latency.to_json(),
            "witnessed": seen,
            "changes": changes,
            "processor": used.as_secs_f64(),
        }))
    })
    .await
}

async fn repeat(
    peer: Peer,
    mut names: impl Iterator<Item = u64> + Send,
    witness: Arc<Witness>,
    window: Window,
) -> Result<Tally, Fault> {
    let mut tally = Tally::default();
    let mut from = Instant::now();
    while !window.is_over(from) {
        peer.call(names.next().unwrap_or_default(), &witness).await?;
        let to = Instant::now();
        tally.record(&window, from, to);
        from = to;
    }
    Ok(tally)
}
