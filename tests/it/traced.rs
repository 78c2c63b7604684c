//! Spans of a call: what they say, and how they lead from one that waits to the one it waits for.

use std::process::Command;
use std::time::Duration;

use etcd_locked::{LockError, Locks, etcd_locked};
use tokio::time::sleep;
use tracing::{Instrument as _, Span, info_span};

use crate::corner::{Corner, connect, take};
use crate::limit::{self, within};
use crate::spans::Spans;
use crate::worker::Worker;

#[etcd_locked("orders/<id>", locks = &locks)]
async fn ship(locks: Locks, id: u64) -> Result<Option<&'static str>, LockError> {
    let within = Span::current();
    info_span!("packing").in_scope(|| Ok(within.metadata().map(|it| it.name())))
}

#[etcd_locked("orders/<id>", locks = &locks, wait = "none", shared)]
async fn look_up(locks: Locks, id: u64) -> Result<(), LockError> {
    Ok(())
}

#[test]
fn spans_say_what_was_waited_for_and_held() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let spans = Spans::default();
    let _subscriber = spans.subscribe();
    runtime.block_on(async {
        let (corner, [locks]) = Corner::with_engines().await;
        let call = ship(locks.clone(), 7).instrument(info_span!("request"));
        assert_eq!(within("the call", call).await.unwrap(), Some("lock.held"));
        let [wait] = &spans.named("lock.wait")[..] else {
            panic!("{:?}", spans.named("lock.wait"));
        };
        assert_eq!(wait.parent, Some("request"));
        assert_eq!(wait.fields["lock.template"], "orders/<id>");
        assert_eq!(wait.fields["lock.mode"], "exclusive");
        assert_eq!(wait.fields["lock.outcome"], "granted");
        wait.fields["lock.waited_ms"].parse::<u64>().unwrap();
        assert!(!wait.fields.contains_key("lock.name"), "it may be personal");
        let [held] = &spans.named("lock.held")[..] else {
            panic!("{:?}", spans.named("lock.held"));
        };
        assert_eq!(held.parent, Some("request"));
        assert_eq!(held.fields["lock.template"], "orders/<id>");
        assert_eq!(held.fields["lock.outcome"], "done");
        assert!(held.fields["lock.token"].parse::<i64>().unwrap() > 0);
        i64::from_str_radix(&held.fields["lock.lease"], 16).unwrap();
        assert_eq!(spans.named("packing")[0].parent, Some("lock.held"));

        // The name is there where it was asked for.
        let named = connect(corner.config().names_in_spans(true)).await;
        let mine = take("a free name", locks.lock("orders/8")).await;
        let refused = within("the call", look_up(named, 8)).await;
        assert_matches!(refused, Err(LockError::Held { .. }));
        let last = spans.named("lock.wait").pop().unwrap();
        assert_eq!(last.fields["lock.name"], "orders/8");
        assert_eq!(last.fields["lock.mode"], "shared");
        assert_eq!(last.fields["lock.outcome"], "held");
        mine.release().await.unwrap();
    });
}

/// A process whose spans are output.
fn traced(corner: &Corner) -> Worker {
    let mut command = Command::new(env!("CARGO_BIN_EXE_traced"));
    command.env_clear().envs(corner.environment());
    Worker::of(command)
}

/// The rest of the next `span` line of this name: its trace, and those it is linked to.
async fn span(worker: &mut Worker, name: &str) -> (String, String) {
    loop {
        let line = worker.says("span").await;
        let mut words = line.split(' ');
        if words.next() == Some(name) {
            let mut word = || words.next().unwrap_or_default().to_owned();
            return (word(), word());
        }
    }
}

#[limit::test]
async fn a_waiters_trace_leads_to_the_holders() {
    let corner = Corner::new().await;
    let mut holder = traced(&corner);
    let mut waiter = traced(&corner);
    // The link is made after a second. A machine may be slow, so the holder takes its time.
    for seconds in [2, 4, 8] {
        holder.send("work nightly");
        let (holders, none) = span(&mut holder, "lock.wait").await;
        assert_eq!(none, "", "it has waited for no other");
        waiter.send("work nightly");
        corner.until_contenders("jobs/nightly", 2).await;
        sleep(Duration::from_secs(seconds)).await;
        holder.asked("done", "released").await;
        let (own, linked) = span(&mut waiter, "lock.wait").await;
        waiter.asked("done", "released").await;
        assert_ne!(own, holders);
        if linked == holders {
            return;
        }
        assert_eq!(linked, "", "no other trace");
    }
    panic!("the waiter's span has no link");
}
