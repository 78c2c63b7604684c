//! Reach: what shows that etcd is lost, is back, or has lost its history (rules P20, P32, P35).

use etcd_locked_core::{Reach, Sent};

use crate::*;

struct Exchanges {
    reach: Reach,
    now: Moment,
}

impl Exchanges {
    fn new() -> Self {
        let now = Moment::after_boot(100 * SECOND);
        Self { reach: Reach::new(10 * SECOND), now }
    }

    fn send(&mut self, writes: bool) -> Sent {
        let key = Key::from("a");
        let put = Op::Put { key: key.clone(), value: [][..].into(), lease: 1 };
        let op = if writes { put } else { Op::Get { key, values: false } };
        let txn = Txn { then: vec![op], ..Txn::default() };
        self.reach.begin(self.now, &Request::Txn(txn))
    }

    fn end(&mut self, sent: Sent, mut result: Result<Response, Failure>) -> bool {
        self.now = self.now + millis(1);
        self.reach.end(self.now, sent, &mut result);
        matches!(result, Ok(Response::Txn(answer)) if answer.stale)
    }

    /// Returns true if the response is stale.
    fn answer(&mut self, sent: Sent, revision: i64) -> bool {
        let revision = Revision::new(revision).expect("no revision is 0");
        let (succeeded, answers) = (true, Vec::new());
        self.end(sent, Ok(Response::Txn(TxnAnswer { revision, stale: false, succeeded, answers })))
    }

    fn write(&mut self, revision: i64) {
        let sent = self.send(true);
        self.answer(sent, revision);
    }

    fn is_wiped(&mut self) -> bool {
        std::iter::from_fn(|| self.reach.news.pop_front()).any(|news| matches!(news, Input::Wiped))
    }
}

#[test]
fn etcd_is_lost_with_the_first_exchange_that_fails() {
    let mut etcd = Exchanges::new();
    for sent in [etcd.send(true), etcd.send(true)] {
        etcd.end(sent, Err(unknown()));
        assert!(matches!(etcd.reach.news.pop_front(), Some(Input::Lost { .. })));
    }
    assert!(etcd.reach.is_lost_since().is_none(), "they may have failed with one member");
    let sent = etcd.send(true);
    etcd.end(sent, Err(unknown()));
    assert!(etcd.reach.is_lost_since().is_some());
    etcd.reach.news.clear();
    etcd.write(1);
    assert!(matches!(etcd.reach.news.pop_front(), Some(Input::Back)));
}

#[test]
fn failure_of_a_request_sent_before_a_response_is_ignored() {
    let mut etcd = Exchanges::new();
    let early = etcd.send(true);
    etcd.write(1);
    etcd.end(early, Err(unknown()));
    assert!(etcd.reach.news.pop_front().is_none());
}

#[test]
fn lower_write_ends_the_history_once() {
    let mut etcd = Exchanges::new();
    etcd.write(100);
    let sent = [etcd.send(true), etcd.send(true), etcd.send(true)];
    etcd.answer(sent[0], 7);
    assert!(etcd.is_wiped());
    // Sent before. The responses come from either history.
    etcd.answer(sent[1], 8);
    etcd.answer(sent[2], 101);
    etcd.write(9);
    let read = etcd.send(false);
    assert!(!etcd.answer(read, 9), "a later read is not stale");
    assert!(!etcd.is_wiped());
}

/// Two responses of the next history may be late. Only the first one ends the previous history.
#[test]
fn put_of_a_known_revision_ends_the_history_once() {
    let mut etcd = Exchanges::new();
    etcd.write(5);
    let sent = [etcd.send(true), etcd.send(true)];
    etcd.answer(sent[1], 5);
    assert!(etcd.is_wiped());
    etcd.answer(sent[0], 4);
    assert!(!etcd.is_wiped());
}

#[test]
fn responses_out_of_order_prove_nothing() {
    let mut etcd = Exchanges::new();
    let early = etcd.send(true);
    etcd.write(100);
    etcd.answer(early, 99);
    assert!(!etcd.is_wiped());
    let read = etcd.send(false);
    assert!(etcd.answer(read, 99), "it is stale");
    assert!(!etcd.is_wiped(), "only a write proves that");
}

#[test]
fn leases_with_bodies_are_renewed_first_when_etcd_is_back() {
    let mut rig = Rig::holding();
    rig.submit(Input::Lost { since: rig.now, cause: None }).acquire(2, B);
    rig.store.wipe();
    rig.submit(Input::Back);
    assert!(renews(rig.next()), "{:?}", rig.next());
    rig.serve_one(renews).lost(1, LossCause::Wiped);
}

#[test]
fn late_failure_does_not_make_an_idle_etcd_silent() {
    let mut etcd = Exchanges::new();
    let (late, other) = (etcd.send(true), etcd.send(true));
    etcd.answer(other, 7);
    etcd.end(late, Err(unknown()));
    assert_eq!(etcd.reach.due(), None);
}

#[test]
fn etcd_is_probed_while_calls_wait() {
    let mut etcd = Exchanges::new();
    etcd.write(7);
    etcd.reach.wait(etcd.now, true);
    assert_eq!(etcd.reach.due(), Some(etcd.now + 2 * SECOND));
    etcd.reach.wait(etcd.now, false);
    assert_eq!(etcd.reach.due(), None);
}
