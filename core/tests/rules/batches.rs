//! Batches: the number of transactions under way, and the content of each (rule P7).

use crate::*;

fn calls(count: u64) -> Rig {
    let mut rig = Rig::warm();
    rig.acquire_each(0..count);
    rig
}

impl Rig {
    /// Checks the numbers of keys that the transactions under way put.
    #[track_caller]
    fn travelling(&mut self, keys: &[usize]) -> &mut Self {
        let sent = self.sent.iter().map(|(_, request)| keys_put(request).len());
        assert_eq!(sent.collect::<Vec<_>>(), keys);
        self
    }

    #[track_caller]
    fn tick(&mut self) -> &mut Self {
        assert!(self.is_due());
        self.pass(Duration::ZERO)
    }

    #[track_caller]
    fn hold_deferred(&mut self, call: CallId, name: &str) -> &mut Self {
        self.acquire(call, name).tick().serves(call)
    }

    #[track_caller]
    fn puts_and_deletes(&mut self) -> &mut Self {
        let keys = (keys_put(self.next()).len(), keys_deleted(self.next()).len());
        assert_eq!((self.sent.len(), keys), (1, (1, 1)));
        assert!(matches!(self.next(), Request::Txn(txn) if txn.or_else.is_empty()));
        self
    }
}

#[test]
fn transaction_is_sent_once_as_large_as_all_under_way() {
    let mut rig = calls(64);
    rig.travelling(&[1, 1, 2, 4, 8, 16, 32]);
    rig.acquire_each(64..66);
    assert_eq!(rig.sent.len(), 7, "two are fewer than 64");
    (0..6).for_each(|_| _ = rig.serve_one(any));
    rig.travelling(&[32]).serve_one(any).travelling(&[2]);
}

#[test]
fn full_transaction_does_not_wait_for_others() {
    let mut rig = calls(64 + 64 + 63);
    rig.travelling(&[1, 1, 2, 4, 8, 16, 32, 64]);
    rig.acquire_each(191..192).travelling(&[1, 1, 2, 4, 8, 16, 32, 64, 64]);
}

#[test]
fn at_most_16_transactions_are_under_way() {
    let mut rig = calls(1_000);
    assert_eq!(rig.sent.len(), 16);
    rig.serve().granted_each(0..1_000);
}

/// A core with an open session, whose requests leave at the next tick.
fn deferring(keys_per_session: Option<usize>) -> Rig {
    Rig::with(Settings { keys_per_session, defers: true, ..settings(1) }).warmed()
}

#[test]
fn calls_share_a_request_until_the_sender_wakes_up() {
    let mut rig = deferring(None);
    rig.pass(millis(2_500)); // silence causes no extra request
    rig.acquire_each(0..5).sends_nothing().tick().travelling(&[5]).serve();
    for call in 0..5 {
        rig.granted(call).release(call);
    }
    rig.sends_nothing().tick();
    assert_eq!(rig.sent.len(), 1);
    rig.serve().is_idle();
}

#[test]
fn no_thread_is_woken_if_nothing_can_be_sent() {
    let mut rig = deferring(None);
    rig.hold_deferred(1, A).acquire(2, A);
    assert!(!rig.is_due(), "call 2 waits for call 1");
    rig.release(1).granted(2);
    assert!(!rig.is_due(), "it was handed over");
    rig.acquire(3, B).acquire(4, C).tick().acquire(5, "locks/d");
    assert!(!rig.is_due(), "two are under way");
}

#[test]
fn put_is_sent_though_the_next_call_needs_another_session() {
    let mut rig = deferring(Some(1));
    rig.acquire(1, A).acquire(2, B).tick().serves(1);
}

#[test]
fn busy_etcd_gets_a_put_again_after_a_pause() {
    let mut rig = Rig::warm();
    rig.acquire(1, A).acquire(2, B);
    let [(first, _), second] = [rig.take(puts), rig.take(puts)];
    rig.pass(millis(1)).carry_out(second).granted(2);
    rig.deliver((first, Err(unavailable()))).sends_nothing();
    rig.pass(millis(60)).serves(1);
}

/// Puts of other sessions in the same transaction succeed (rules P9, P27).
#[test]
fn lease_that_is_gone_takes_only_its_own_puts_along() {
    let mut rig = deferring(Some(1));
    rig.hold_deferred(1, A).hold_deferred(2, B).release(1).release(2).tick().serve();
    let leases: Vec<_> = rig.sessions().iter().map(|it| it.lease()).collect();
    rig.store.revoke(leases[0].expect("a value"));
    rig.acquire(3, A).acquire(4, B).tick().travelling(&[2]);
    rig.answer(puts, Err(refused(Refusal::LeaseNotFound))).serves(3).granted(4);
    let left: Vec<_> = rig.sessions().iter().map(|it| it.lease()).collect();
    assert!(left.contains(&leases[1]) && !left.contains(&leases[0]));
}

#[test]
fn stuck_transactions_hold_nothing_back_once_etcd_responds() {
    let mut rig = calls(64);
    rig.answer(puts, Err(unknown())).pass(millis(200)).come_back();
    let barrier = rig.sent.pop_back().expect("a barrier");
    rig.carry_out(barrier);
    let before = rig.sent.len();
    rig.acquire(100, "locks/100");
    assert_eq!(rig.sent.len(), before + 1, "63 are under way, and may never arrive");
}

/// Call 1 releases `locks/a` and call 2 wants `locks/b` before the same tick: one request does both.
fn release_and_acquisition() -> Rig {
    let mut rig = deferring(None);
    rig.hold_deferred(1, A).release(1).acquire(2, B).tick().puts_and_deletes();
    rig
}

/// The reader's key is older, but is deleted in the transaction that puts the writer's. A watch would not report that any more.
#[test]
fn put_does_not_wait_for_a_key_that_goes_with_it() {
    let mut rig = deferring(None);
    rig.share(1, A, Mode::Shared, Wait::Forever).tick().serves(1);
    rig.release(1).acquire(2, A).tick().puts_and_deletes();
    rig.serve_one(any).granted(2).released(1).lacks(&["locks/a/a1.r0"]);
}

#[test]
fn put_is_sent_alone_if_a_key_to_delete_is_gone() {
    release_and_acquisition().delete_unseen("locks/a/a1").serves(2).released(1);
}

#[test]
fn refused_deletion_refuses_no_put() {
    let mut rig = release_and_acquisition();
    rig.store.denied = Some("locks/a/");
    rig.serves(2).live(3 * SECOND);
    assert!(matches!(rig.output(1), Some(Output::Released { result: Err(_), .. })));
}

#[test]
fn deletion_without_a_response_is_sent_again_alone() {
    let mut rig = release_and_acquisition();
    rig.fail_all(unknown).live(SECOND).granted(2).released(1).lacks(&["locks/a/a1"]);
}

#[test]
fn lingering_key_is_deleted_with_the_next_put() {
    let mut rig = Rig::holding();
    rig.pass(Duration::from_micros(500)).release_lingering(1);
    rig.pass(Duration::from_micros(1_200)); // 300 µs later it would be deleted separately
    rig.sends_nothing().acquire(2, B).puts_and_deletes();
}

/// Found by review: while other calls released locks, a denied put never travelled alone, so its caller was never refused.
#[test]
fn no_deletion_joins_a_repeated_put() {
    let mut rig = deferring(None);
    rig.hold_deferred(3, C);
    rig.store.denied = Some("locks/b");
    let both = rig.acquire(1, B).acquire(2, A).tick().take(puts);
    rig.release(3).carry_out(both);
    for _ in 0..2 {
        let put = rig.take(puts);
        assert!(!deletes(&put.1));
        rig.carry_out(put);
    }
    rig.refused(1);
    rig.granted(2);
}
