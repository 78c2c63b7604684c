//! Outage: an etcd that refuses connections is asked now and then, and not without pause.

use std::time::Duration;

use super::stage::{Ask, Fate, Stage, plays};
use crate::world::violation::must;

/// Tasks with edges that other processes may follow.
const TASKS: usize = 5;
/// Requests a second that a process may send.
const MOST: usize = 50;

#[test]
fn outage_is_met_with_pauses_while_edges_are_stale() {
    plays(|| {
        let mut stage = Stage::of(2);
        stage.take(0, "hot");
        let mut calls = Vec::new();
        for task in 0..TASKS {
            let outer = stage.take(1, &format!("own-{task}"));
            let ask = Ask { holds: vec![outer], ..Ask::of("hot") };
            calls.push(stage.ask(1, ask));
        }
        stage.run(Duration::from_secs(3));
        stage.fate(|_, _| Fate::Refused);
        for call in calls {
            stage.cancel(call);
        }
        for second in 0..5 {
            let since = stage.now;
            stage.run(Duration::from_secs(1));
            let sent = stage.requests(1, since);
            must!(Quiet, sent <= MOST, "{sent} requests in second {second} of an outage");
        }
    });
}

#[test]
fn outage_is_met_with_pauses_while_tasks_wait() {
    let mut stage = Stage::of(2);
    stage.take(0, "hot");
    for task in 0..TASKS {
        let outer = stage.take(1, &format!("own-{task}"));
        let ask = Ask { holds: vec![outer], ..Ask::of("hot") };
        stage.ask(1, ask);
    }
    stage.run(Duration::from_millis(500));
    stage.fate(|_, _| Fate::Refused);
    for _ in 0..5 {
        let since = stage.now;
        stage.run(Duration::from_secs(1));
        assert!(stage.requests(1, since) <= MOST);
    }
}
