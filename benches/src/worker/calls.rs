//! Calls as work: every task locks and unlocks, one call after another.

use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use tokio::task::JoinSet;

use super::peer::Peer;
use super::spec::Spec;
use super::tally::{Tally, Window};
use super::witness::Witness;
use super::{Fault, serve};
use crate::kind::Kind;

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
        let mut sum = Tally::default();
        while let Some(tally) = tasks.join_next().await {
            sum.add(&tally??);
        }
        let (seen, changes) = witness.take();
        // Kinds that lock nothing have no witness.
        let bundles = matches!(spec.kind, Kind::Raw | Kind::Stored | Kind::Guarded);
        Ok(json!({
            "count": sum.count,
            "total": sum.total,
            "latency": sum.latency.to_json(),
            "witnessed": if bundles { sum.total } else { seen },
            "changes": changes,
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
        let calls = peer.call(names.next().unwrap_or_default(), &witness).await?;
        let to = Instant::now();
        tally.record(&window, from, to, calls);
        from = to;
    }
    Ok(tally)
}
