//! Records: the value of a key is the record of its call. It lists the other keys of its group (rule P38), and contains
//! `held_since` after a second of holding (rule P18).

use crate::*;

const KEY: &str = "locks/a/a1";

const SHORT: Duration = millis(450);

pub(super) fn kv(key: &str, value: &str, create_revision: Revision) -> Kv {
    let (key, value, mod_revision) = (key.into(), value.into(), create_revision);
    Kv { key, value, create_revision, mod_revision, lease: None }
}

#[test]
fn value_of_a_key_names_the_other_keys_of_its_group() {
    let mut town = Town::of(1);
    town.take(0, 1, &["a", "b", "c"]);
    for waited in ["", ",\"waited\":0"] {
        let others = "\"keys\":[[\"locks/a/a1\",0],[\"locks/c/a1\",0]]";
        assert_eq!(town.value("locks/b/a1"), format!("{{\"call\":1{waited},{others}}}"));
        let kv = town.store.kv(b"locks/b/a1").expect("a key");
        let others = ["locks/a/a1", "locks/c/a1"].map(|key| (key.into(), kv.create_revision));
        assert_eq!(listed_by(kv), others);
        town.live(2 * SECOND);
    }
}

/// Another client may have written any of these values.
#[test]
fn value_lists_keys_only_in_their_form() {
    let listed = |value: &str| {
        let listed = listed_by(&kv("", value, Revision::new(9).expect("not 0")));
        listed.iter().map(|(key, created)| format!("{key}@{created:?} ")).collect::<String>()
    };
    let both = r#"{"call":1,"keys":[["locks/a/1",0],["locks/b/1",7]]"#;
    assert_eq!(listed(&format!("{both}}}")), "locks/a/1@9 locks/b/1@7 ");
    for other in ["", "{}", r#"{"keys":[[]]}"#, r#"{"x":1,"keys":[["a",x]]}"#, both] {
        assert_eq!(listed(other), "", "{other}");
    }
    let many = format!("{{\"x\":1,\"keys\":[{}]}}", vec!["[\"a\",1]"; 200].join(","));
    assert_eq!(listed(&many).split_whitespace().count(), 128, "no others are followed");
}

#[test]
fn list_of_keys_has_a_limit() {
    let mut town = Town::of(1);
    let names: Vec<String> = (0..30).map(|n| format!("{n}{}", "x".repeat(500))).collect();
    town.take(0, 1, &names.iter().map(String::as_str).collect::<Vec<_>>());
    for name in names {
        let kv = town.store.kv(format!("locks/{name}/a1").as_bytes()).expect("a key");
        assert!(kv.value.len() < 8300 && listed_by(kv).len() == 15);
    }
}

#[test]
fn record_that_is_no_object_names_no_group() {
    let mut rig = Rig::warm();
    let record = b"text"[..].into();
    rig.submit(Input::Acquire(Acquire { record, ..ask(1, &[A, B]) })).serves(1);
    assert_eq!(rig.record(KEY), "text");
}

#[test]
fn wait_of_a_holder_leaves_its_records_as_they_are() {
    let mut town = Town::holding(&["a", "b"]);
    town.live(2 * SECOND);
    let before = town.store.kv(KEY.as_bytes()).cloned();
    town.ask(0, 3, &["b"], &[0]).live(3 * SECOND);
    assert_eq!(town.store.kv(KEY.as_bytes()), before.as_ref());
}

/// Returns the record of a call that waited for this time, and has held its lock for a second.
fn waited(call: CallId, millis: u64) -> String {
    format!("{{\"call\":{call},\"waited\":{millis}}}")
}

/// Call 1 has held `a` for a short time, so its record was not written again.
fn holder() -> Rig {
    let mut rig = Rig::holding();
    rig.live(SHORT);
    rig
}

/// Calls have held `a` and these names for a second. The request that writes their records has not reached etcd, all others have.
fn describing(others: &[&str]) -> Rig {
    let mut rig = Rig::holding();
    for (call, name) in (2..).zip(others) {
        rig.hold(call, name);
    }
    let description = rig.pass(SECOND).take(puts);
    rig.serve();
    rig.sent.push_back(description);
    rig
}

#[test]
fn key_says_since_when_it_is_held_after_a_second() {
    let mut rig = Rig::waiting();
    rig.live(2 * SECOND).delete("locks/a/zz").serves(1).live(SHORT);
    assert_eq!(rig.record(KEY), record(1));
    rig.live(SECOND);
    assert_eq!(rig.record(KEY), waited(1, 2000));
}

#[test]
fn key_names_the_holder_after_a_hand_over() {
    let mut rig = holder();
    rig.acquire(2, A).live(3 * SECOND).release(1).granted(2).live(SHORT);
    assert_eq!(rig.record(KEY), waited(1, 0));
    rig.live(SECOND);
    assert_eq!(rig.record(KEY), waited(2, 3000));
    rig.acquire(3, A).live(70 * SECOND).release(2).granted(3).live(2 * SECOND);
    assert_eq!(rig.record(KEY), waited(3, 70000));
}

#[test]
fn key_names_another_reader_once_the_first_has_gone() {
    let mut rig = Rig::reading();
    rig.share(2, A, Mode::Shared, Wait::Forever).serves(2).live(2 * SECOND);
    rig.give_back(1).live(SHORT);
    assert!(rig.record("locks/a/a1.r0").starts_with("{\"call\":2,"));
}

#[test]
fn holds_of_less_than_a_second_write_nothing() {
    let mut rig = holder();
    let before = rig.revision();
    for call in 1..30 {
        rig.acquire(call + 1, A).live(SHORT).release(call).granted(call + 1);
    }
    assert_eq!(rig.revision(), before);
}

#[test]
fn hold_is_written_once() {
    let mut rig = holder();
    let before = rig.store.revision();
    rig.live(200 * SECOND);
    assert_eq!(rig.store.revision(), before + 1);
    rig.submit(Input::Inspect).live(2 * SECOND);
    assert_eq!(rig.store.revision(), before + 1);
}

#[test]
fn description_is_sent_again_unless_it_is_refused() {
    for (failure, writes) in [(unknown(), 1), (unavailable(), 1), (refused(Refusal::NoSpace), 0)] {
        let mut rig = describing(&[]);
        rig.answer(puts, Err(failure));
        let before = rig.store.revision();
        rig.live(20 * SECOND);
        assert_eq!(rig.store.revision(), before + writes);
        rig.nothing_about(1);
    }
}

/// Otherwise each held key would be read for a user who may not write records.
#[test]
fn refused_description_has_nothing_read() {
    let mut rig = describing(&[]);
    rig.answer(puts, Err(refused(Refusal::PermissionDenied))).sends_nothing();
}

#[test]
fn own_description_is_not_taken_for_a_foreign_put() {
    let mut rig = describing(&[]);
    let early = rig.submit(Input::Inspect).applied(reads);
    rig.serve_one(puts).deliver(early).sends_nothing(); // it is not read again
    assert_eq!(rig.watched(), [KEY]);
    rig.report().submit(Input::Inspect).live(SECOND).nothing_about(1);
}

/// A read shows a mod revision that the process does not know. The next one shows that the write was its own (etcd#22209).
#[test]
fn description_without_a_response_is_followed_by_the_next() {
    let mut rig = describing(&[]);
    let (description, _) = rig.applied(puts);
    rig.deliver((description, Err(unknown()))).acquire(2, A).release(1).granted(2);
    rig.live(2 * SECOND).nothing_about(2);
    assert!(rig.record(KEY).starts_with("{\"call\":2,"), "{}", rig.record(KEY));
}

#[test]
fn description_leaves_the_key_of_another_client_alone() {
    let mut rig = describing(&[]);
    rig.contend(KEY);
    let other = rig.store.kv(KEY.as_bytes()).cloned();
    rig.serve_one(puts).report().lost(1, LossCause::Overwritten).serve();
    assert_eq!(rig.store.kv(KEY.as_bytes()), other.as_ref());
}

#[test]
fn late_description_creates_no_key() {
    let mut rig = describing(&[]);
    let description = rig.take(puts);
    rig.give_back(1).lacks(&[KEY]).carry_out(description).lacks(&[KEY]).comes_to_rest();
}

#[test]
fn lock_that_goes_takes_no_description_along() {
    let mut rig = describing(&[B, C]);
    let description = rig.take(puts);
    rig.give_back(2).carry_out(description).serve();
    for (call, key) in [(1, KEY), (3, "locks/c/a1")] {
        assert_eq!(rig.record(key), waited(call, 0));
    }
}

#[test]
fn descriptions_of_many_locks_go_together() {
    let names: Vec<String> = (0..99).map(|at| format!("locks/{at}")).collect();
    let mut rig = describing(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let before = rig.store.revision();
    rig.serve();
    assert!(rig.record("locks/98/a1").contains("waited"));
    assert!(rig.store.revision() <= before + 4);
}

#[test]
fn refusal_says_since_when_a_call_of_this_process_holds() {
    let mut rig = holder();
    for (call, expected) in [(2, record(1)), (3, waited(1, 0))] {
        rig.attempt(call, A);
        assert_eq!(rig.busy(call).1, expected);
        rig.live(SECOND);
    }
}
