//! Records: the value of a key is its call's record. It names the other keys of its group (rule P38), and since when it is held,
//! once that is a second (rule P18). Records are plain text here, to which that is appended as it would be to JSON.

use std::time::Duration;

use etcd_locked_core::{
    Failure, Input, Kv, LossCause, Refusal, Refused, Request, RequestId, Revision, Wait, listed_by,
};
use etcd_locked_sim::etcd::{refused, unavailable, unknown};

use crate::rig::Rig;
use crate::town::Town;

const A: &str = "locks/a";
const KEY: &str = "locks/a/a1";

const SECOND: Duration = Duration::from_secs(1);
const SHORT: Duration = Duration::from_millis(450);

fn value(town: &Town, key: &str) -> String {
    let kv = town.store.kv(key.as_bytes()).expect("a key");
    String::from_utf8_lossy(&kv.value).into_owned()
}

#[test]
fn value_of_a_single_key_is_the_record() {
    let mut town = Town::of(1);
    town.take(0, 1, &["a"]);
    let value = value(&town, KEY);
    assert_eq!(value, "{\"call\":1}");
}

#[test]
fn value_of_a_key_names_the_other_keys_of_its_group() {
    let mut town = Town::of(1);
    town.take(0, 1, &["a", "b", "c"]);
    let expected = "{\"call\":1,\"keys\":[[\"locks/a/a1\",0],[\"locks/c/a1\",0]]}";
    assert_eq!(value(&town, "locks/b/a1"), expected);
    let kv = town.store.kv(b"locks/b/a1").expect("a key");
    let others = ["locks/a/a1", "locks/c/a1"].map(|key| (key.into(), kv.create_revision));
    assert_eq!(listed_by(kv), others);
}

/// Another client may have written any of them.
#[test]
fn value_lists_keys_only_in_their_form() {
    let listed = |value: &str| {
        let [create_revision, mod_revision] = [9, 10].map(|at| Revision::new(at).expect("not 0"));
        let (key, value) = (Vec::new(), value.into());
        let listed = listed_by(&Kv { key, value, create_revision, mod_revision, lease: None });
        listed
            .into_iter()
            .map(|(key, created)| (key.to_string(), created.get()))
            .collect::<Vec<_>>()
    };
    let both = r#"{"call":1,"keys":[["locks/a/1",0],["locks/b/1",7]]"#;
    let expected = [("locks/a/1".to_owned(), 9), ("locks/b/1".to_owned(), 7)];
    assert_eq!(listed(&format!("{both}}}")), expected);
    for other in ["", "{}", r#"{"keys":[[]]}"#, r#"{"x":1,"keys":[["a",x]]}"#, both] {
        assert!(listed(other).is_empty(), "{other}");
    }
}

#[test]
fn record_that_is_no_object_names_no_group() {
    let mut rig = Rig::warm();
    rig.hold_all(1, &[A, "locks/b"]);
    assert_eq!(record(&rig, KEY), "call 1");
}

#[test]
fn wait_of_a_holder_leaves_its_records_as_they_are() {
    let mut town = Town::of(2);
    town.take(0, 1, &["a"]);
    town.take(1, 2, &["b"]);
    town.live(2 * SECOND);
    let before = town.store.kv(b"locks/a/a1").cloned();
    town.ask_for(0, 3, &["b"], &[1], Wait::Forever);
    town.live(3 * SECOND);
    assert_eq!(town.store.kv(b"locks/a/a1"), before.as_ref());
}

/// The record at etcd of a key of the rig.
fn record(rig: &Rig, key: &str) -> String {
    let kv = rig.store.kv(key.as_bytes()).expect("a key");
    String::from_utf8_lossy(&kv.value).into_owned()
}

/// Call 1 holds `a`, for a moment that is too short to be told.
fn holder() -> Rig {
    let mut rig = Rig::warm();
    rig.hold(1, A);
    rig.live(SHORT);
    rig
}

/// The same for long enough: the request that says so has not reached etcd.
fn describing(others: &[&str]) -> (Rig, (RequestId, Request)) {
    let mut rig = Rig::warm();
    let calls = (1..).zip(std::iter::once(&A).chain(others));
    for (call, name) in calls {
        rig.hold(call, name);
    }
    rig.pass(SECOND);
    let description = rig.take_put();
    rig.serve();
    (rig, description)
}

#[test]
fn key_says_since_when_it_is_held_after_a_second() {
    let mut rig = Rig::warm();
    let other = rig.contend("locks/a/zz");
    rig.acquire(1, A, Wait::Forever);
    rig.live(2 * SECOND);
    rig.store.revoke(other);
    rig.report();
    rig.serve();
    rig.granted(1);
    rig.live(SHORT);
    assert_eq!(record(&rig, KEY), "call 1");
    rig.live(SECOND);
    assert_eq!(record(&rig, KEY), "call 1,\"waited\":2000}");
}

#[test]
fn key_names_the_holder_after_a_hand_over() {
    let mut rig = holder();
    rig.acquire(2, A, Wait::Forever);
    rig.live(3 * SECOND);
    rig.release(1);
    rig.granted(2);
    rig.live(SHORT);
    assert_eq!(record(&rig, KEY), "call 1,\"waited\":0}");
    rig.live(SECOND);
    assert_eq!(record(&rig, KEY), "call 2,\"waited\":3000}");
    // The same once more, long after.
    rig.acquire(3, A, Wait::Forever);
    rig.live(70 * SECOND);
    rig.release(2);
    rig.granted(3);
    rig.live(2 * SECOND);
    assert_eq!(record(&rig, KEY), "call 3,\"waited\":70000}");
}

#[test]
fn keys_of_a_group_still_name_each_other() {
    let mut town = Town::of(1);
    town.take(0, 1, &["a", "b"]);
    town.live(2 * SECOND);
    let expected = "{\"call\":1,\"waited\":0,\"keys\":[[\"locks/b/a1\",0]]}";
    assert_eq!(value(&town, "locks/a/a1"), expected);
}

#[test]
fn holds_of_less_than_a_second_write_nothing() {
    let mut rig = holder();
    let before = rig.revision();
    for call in 1..30 {
        rig.acquire(call + 1, A, Wait::Forever);
        rig.live(SHORT);
        rig.release(call);
        rig.granted(call + 1);
    }
    assert_eq!(rig.revision(), before);
}

#[test]
fn hold_is_written_once() {
    let mut rig = holder();
    let before = rig.revision().get();
    rig.live(200 * SECOND);
    assert_eq!(rig.revision().get(), before + 1);
    rig.submit(Input::Inspect);
    rig.live(2 * SECOND);
    assert_eq!(rig.revision().get(), before + 1);
}

#[test]
fn description_is_sent_again_unless_it_is_refused() {
    let failures: [(fn() -> Failure, i64); 3] =
        [(unknown, 1), (unavailable, 1), (|| refused(Refusal::NoSpace), 0)];
    for (failure, writes) in failures {
        let (mut rig, description) = describing(&[]);
        rig.answer(description.0, Err(failure()));
        let before = rig.revision().get();
        rig.live(20 * SECOND);
        assert_eq!(rig.revision().get(), before + writes);
        assert!(rig.output(1).is_none());
    }
}

#[test]
fn own_description_is_no_put_of_another_client() {
    let (mut rig, description) = describing(&[]);
    rig.carry_out(description);
    assert_eq!(rig.watched(), [KEY]);
    rig.report();
    rig.submit(Input::Inspect);
    rig.live(SECOND);
    assert!(rig.output(1).is_none());
}

/// A read shows a mod revision that the process does not know, and then whose write it was (etcd#22209).
#[test]
fn description_without_a_response_is_followed_by_the_next() {
    let (mut rig, description) = describing(&[]);
    rig.store.apply(rig.now, &description.1).expect("a value");
    rig.answer(description.0, Err(unknown()));
    rig.acquire(2, A, Wait::Forever);
    rig.release(1);
    rig.granted(2);
    rig.live(2 * SECOND);
    assert!(rig.output(2).is_none());
    assert!(record(&rig, KEY).starts_with("call 2,"), "{}", record(&rig, KEY));
}

#[test]
fn description_leaves_the_key_of_another_client_alone() {
    let (mut rig, description) = describing(&[]);
    let other = rig.contend(KEY);
    rig.carry_out(description);
    assert_eq!(rig.store.kv(KEY.as_bytes()).and_then(|kv| kv.lease), Some(other));
    rig.report();
    assert_eq!(rig.lost(1), LossCause::Overwritten);
}

#[test]
fn late_description_brings_no_key_back() {
    let (mut rig, description) = describing(&[]);
    rig.give_back(1);
    assert!(rig.released(1).is_ok() && !rig.has(KEY));
    rig.carry_out(description);
    assert!(!rig.has(KEY));
    assert!(rig.comes_to_rest());
}

#[test]
fn lock_that_goes_takes_no_description_along() {
    let (mut rig, description) = describing(&["locks/b", "locks/c"]);
    rig.give_back(2);
    rig.carry_out(description);
    rig.serve();
    for (call, key) in [(1, KEY), (3, "locks/c/a1")] {
        assert_eq!(record(&rig, key), format!("call {call},\"waited\":0}}"));
    }
}

#[test]
fn descriptions_of_many_locks_go_together() {
    let names: Vec<String> = (0..99).map(|at| format!("locks/{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (mut rig, description) = describing(&names);
    let before = rig.revision().get();
    rig.carry_out(description);
    rig.serve();
    assert!(record(&rig, "locks/98/a1").contains("waited"));
    assert!(rig.revision().get() <= before + 4);
}

#[test]
fn refusal_says_since_when_a_call_of_this_process_holds() {
    let mut rig = holder();
    for (call, expected) in [(2, "call 1"), (3, "call 1,\"waited\":0}")] {
        rig.acquire(call, A, Wait::Once);
        let refused = rig.refused(call);
        let Refused::Held { owner: Some(owner), .. } = refused else { panic!("{refused:?}") };
        assert_eq!(String::from_utf8_lossy(&owner.record), expected);
        rig.live(SECOND);
    }
}
