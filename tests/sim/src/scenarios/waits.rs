//! Bounded waits: a call has its answer in time, whatever other calls and etcd do.

use std::time::Duration;

use super::stage::{Ask, Fate, Stage, mentions, plays, writes};
use crate::world::violation::must;
use etcd_locked_core::Refused;
use etcd_locked_core::Wait;

/// What a bounded wait may take beyond its time.
const SLACK: Duration = Duration::from_millis(200);
/// The connect time-out of the stage, and what a call may take beyond it.
const CONNECT: Duration = Duration::from_secs(5 + 4);

#[test]
fn wait_ends_in_time_while_edges_of_others_are_ambiguous() {
    plays(|| {
        let mut stage = Stage::of(2);
        stage.take(0, "hot");
        stage.take(0, "other");
        let [own, mine] = ["own-task", "my-task"].map(|name| stage.take(1, name));
        let nested = |name: &str, outer, wait| Ask { holds: vec![outer], wait, ..Ask::of(name) };
        let leaves = stage.ask(1, nested("hot", own, Wait::Forever));
        stage.run(Duration::from_secs(3));
        // What that task's edges need has no answer from now on.
        stage.fate(|_, request| match writes(request) && mentions(request, "own-task") {
            true => Fate::Lost,
            false => Fate::Served,
        });
        stage.cancel(leaves);
        stage.run(Duration::from_millis(100));
        let wait = Duration::from_millis(500);
        let bounded = stage.ask(1, nested("other", mine, Wait::For(wait)));
        stage.until(Duration::from_secs(10), |stage| stage.refusal(bounded).is_some());
        let took = stage.refusal(bounded).map(|(took, _)| took);
        must!(
            InTime,
            took.is_some_and(|took| took <= wait + SLACK),
            "a wait of {wait:?} ends after {took:?}"
        );
    });
}

/// Where a call meets its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Met {
    /// No call of this process wants it.
    Idle,
    /// A call of this process waits for another process.
    Queued,
    /// A call of this process holds it.
    Held,
    /// Its key is on the way out.
    Deleting,
}

/// How long a call takes to be refused that etcd cannot be reached for; or what it is refused by instead.
fn refused_after(met: Met, fate: Fate, ttl_secs: i64, wait: Wait) -> Result<Duration, String> {
    let mut stage = Stage::of(2);
    let ask = |name: &str, wait| Ask { ttl_secs, wait, ..Ask::of(name) };
    let warm = stage.ask(1, ask("warm", Wait::Forever));
    stage.serve(warm);
    let mut going = None;
    match met {
        Met::Idle => {}
        Met::Queued => {
            stage.take(0, "name");
            stage.ask(1, ask("name", Wait::Forever));
        }
        Met::Held | Met::Deleting => {
            let call = stage.ask(1, ask("name", Wait::Forever));
            stage.serve(call);
            going = Some(call);
        }
    }
    stage.run(Duration::from_secs(2));
    stage.fate(move |_, _| fate);
    if let (Met::Deleting, Some(call)) = (met, going) {
        stage.release(call);
    }
    stage.run(Duration::from_millis(10));
    let call = stage.ask(1, ask("name", wait));
    stage.until(Duration::from_secs(100), |stage| stage.refusal(call).is_some() || stage.has(call));
    match stage.refusal(call) {
        Some((took, Refused::Backend(_))) => Ok(took),
        // So it was when etcd was last reached, and the process knows no better.
        Some((took, Refused::Held { .. })) if matches!(met, Met::Queued | Met::Held) => Ok(took),
        other => Err(format!("{other:?}")),
    }
}

#[test]
fn calls_are_refused_in_time_while_etcd_is_not_reached() {
    plays(|| {
        let mut late = Vec::new();
        for met in [Met::Idle, Met::Queued, Met::Held, Met::Deleting] {
            for fate in [Fate::Lost, Fate::Refused] {
                for ttl_secs in [15, 60] {
                    for wait in [Wait::Once, Wait::For(Duration::from_secs(90)), Wait::Forever] {
                        let took = refused_after(met, fate, ttl_secs, wait);
                        if !took.as_ref().is_ok_and(|took| *took <= CONNECT) {
                            late.push(format!(
                                "{met:?} {fate:?} TTL {ttl_secs} {wait:?}: {took:?}"
                            ));
                        }
                    }
                }
            }
        }
        must!(InTime, late.is_empty(), "{} cases: {late:#?}", late.len());
    });
}

#[test]
fn try_ends_in_time_while_a_delete_is_refused() {
    plays(|| {
        let mut stage = Stage::of(2);
        let held = stage.take(1, "name");
        stage.store.denied = Some("name");
        stage.release(held);
        stage.run(Duration::from_millis(10));
        let once = Ask { wait: Wait::Once, ..Ask::of("name") };
        let tried = stage.ask(1, once);
        stage.until(Duration::from_secs(100), |stage| stage.refusal(tried).is_some());
        // etcd answers all the while, and refuses: it is not silent.
        let took = stage.refusal(tried).map(|(took, _)| took);
        must!(InTime, took.is_some_and(|took| took <= CONNECT), "a single try ends after {took:?}");
    });
}
