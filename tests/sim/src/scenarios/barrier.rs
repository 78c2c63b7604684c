//! Refusals that are taken back: a barrier that etcd's user may not send for a while (rules P10, P34).

use std::time::Duration;

use super::stage::{Ask, Fate, Stage, plays, puts};
use crate::world::violation::must;

/// For how long etcd's user may not write.
const DENIED: Duration = Duration::from_secs(5);
/// How long the name may stay blocked after that.
const FREE: Duration = Duration::from_secs(30);

/// A put without an answer, and a barrier that etcd refuses for a while. Another process has the name in time, though the session
/// of the first one lives on.
pub(crate) fn refused_barrier() {
    let mut stage = Stage::of(2);
    let held = stage.take(0, "held");
    stage.fate(|_, request| match puts(request, "ambiguous") {
        true => Fate::Unanswered,
        false => Fate::Served,
    });
    let call = stage.ask(0, Ask::of("ambiguous"));
    stage.run(Duration::from_secs(1));
    stage.store.forbidden = Some("locks%s");
    stage.run(DENIED);
    stage.fair();
    stage.store.forbidden = None;
    stage.cancel(call);
    stage.release(call);
    let other = stage.ask(1, Ask::of("ambiguous"));
    let served = stage.until(FREE, |stage| stage.has(other));
    let keys = stage.keys("ambiguous");
    must!(I4, served, "{keys:?} block the name, which no call has");
    must!(Truth, stage.has(held), "the lock that was held is lost");
}

#[test]
fn refused_barrier_is_sent_again() {
    plays(refused_barrier);
}
