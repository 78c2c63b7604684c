//! Admission: a contender is admitted once no older one excludes it (rules P2, P11, P14, P15).

use crate::*;

/// A core that waits for `locks/a` behind `zy` and `zz`, and has read the keys ahead of it.
fn third() -> Rig {
    let mut rig = Rig::warm();
    rig.contend("locks/a/zy").contend("locks/a/zz").queue(1, A);
    rig
}

/// A core that has held `locks/a` after others, released it, and still watches it. The put of call 2, behind `zx`, is under way.
fn watching() -> Rig {
    let mut rig = third();
    rig.delete("locks/a/zz").delete("locks/a/zy").granted(1);
    rig.release_fenced(1).serve().contend("locks/a/zx").acquire(2, A);
    rig
}

#[test]
fn predecessor_that_gives_up_proves_no_ownership() {
    let mut rig = third();
    rig.delete("locks/a/zz").serve().nothing_about(1);
    rig.delete("locks/a/zy").serves(1);
    assert_eq!(rig.owned(1).revision, rig.revision(), "nothing older was left in that state");
}

/// A watch event often arrives before the response to a put (rule P14).
#[test]
fn event_before_the_response_counts() {
    let mut rig = watching();
    let put = rig.applied(puts);
    rig.delete("locks/a/zx").deliver(put).sends_nothing(); // without a read
    assert_eq!(rig.granted(2).owned(2).revision, rig.revision());
}

/// The watch reports one predecessor. A read of an earlier state does not show that the other is gone (rule P21).
#[test]
fn token_is_of_the_state_in_which_the_last_key_was_gone() {
    let mut rig = third();
    let read = rig.delete_unseen("locks/a/zy").pass(SOON).applied(reads); // the read still shows zz
    rig.delete("locks/a/zz").deliver(read);
    assert_eq!(rig.granted(1).owned(1).revision, rig.revision());
}

/// An operator deletes it, and the watch reports that before the response to the put. There must not be two owners.
#[test]
fn key_deleted_before_its_response_owns_nothing() {
    let mut rig = watching();
    let put = rig.applied(puts);
    rig.delete("locks/a/a1").contend("locks/a/zz").deliver(put);
    rig.delete("locks/a/zx").serve().nothing_about(2); // another key is ahead of it now
    rig.delete("locks/a/zz").serves(2);
}

/// The put of a cancelled call does not hold the name. Its outcome decides, whatever the try wants.
#[test]
fn try_waits_for_the_outcome_of_a_cancelled_put() {
    for (mode, ttl_secs) in [(Mode::Exclusive, TTL + 1), (Mode::Shared, TTL)] {
        for is_ambiguous in [false, true] {
            let mut rig = Rig::putting();
            let (put, answer) = rig.applied(puts);
            rig.cancel(1);
            let wait = Wait::Once;
            rig.submit(Input::Acquire(Acquire { mode, ttl_secs, wait, ..ask(2, &[A]) }));
            rig.deliver((put, if is_ambiguous { Err(unknown()) } else { answer }));
            rig.live(SOON).granted(2);
        }
    }
}

#[test]
fn try_waits_for_the_deletion_of_an_own_key() {
    let mut rig = Rig::reading();
    let delete = rig.release(1).take(deletes);
    rig.attempt(2, A).serve().carry_out(delete).live(SOON).granted(2);
}

/// Call 1 wants these names. `locks/a` has twenty older contenders.
fn far_back(names: &[&str]) -> (Rig, Vec<String>) {
    let mut rig = Rig::warm();
    let others: Vec<String> = (10..30).map(|n| format!("locks/a/z{n}")).collect();
    others.iter().for_each(|key| _ = rig.contend(key));
    rig.acquire_all(1, names).serve().nothing_about(1);
    (rig, others)
}

/// Deletes these contenders. The watch then reports the last deletion.
fn after_the_last(rig: &mut Rig, gone: &[String]) {
    gone.iter().for_each(|key| _ = rig.delete_unseen(key));
    rig.report();
}

/// A watch of all contenders costs an event for each, so a waiter with many predecessors watches only the last one (rule P15).
#[test]
fn distant_waiter_watches_only_its_predecessor() {
    let (mut rig, others) = far_back(&[A]);
    assert_eq!(rig.watched(), ["locks/a/z29"]);
    // The last one gives up, which proves nothing (rule P14), so the next one is watched.
    after_the_last(&mut rig, &others[19..]);
    rig.serve_one(any).nothing_about(1).sends_nothing();
    assert_eq!(rig.watched(), ["locks/a/z28"]);
    // Once the head is near, all contenders are watched.
    after_the_last(&mut rig, &[&others[..15], &others[18..19]].concat());
    rig.serve().nothing_about(1);
    assert_eq!(rig.watched(), ["locks/a/"]);
    others[15..18].iter().for_each(|key| _ = rig.delete(key));
    rig.granted(1);
}

/// etcd reads all keys of the family for each range. The keys of a group have the same age, and so no order.
#[test]
fn one_range_admits_a_distant_waiter() {
    for names in [&[A][..], &["locks/a/b", A]] {
        let (mut rig, others) = far_back(names);
        after_the_last(&mut rig, &others);
        let family = |op: &&Op| matches!(op, Op::Range { prefix, .. } if &**prefix == "locks/a/");
        assert_eq!(operations(rig.next()).iter().filter(family).count(), 1);
        rig.serve_one(any).granted(1).sends_nothing(); // nothing is put again
    }
}

#[test]
fn delete_of_an_earlier_incarnation_is_ignored() {
    let mut rig = third();
    let created = rig.created(A);
    let revision = Revision::new(created.map_or(0, Revision::get) - 1).expect("not the first");
    for key in ["locks/a/zz", "locks/a/a1"] {
        rig.event(Event::Delete { key: key.into(), revision });
        rig.sends_nothing(); // nothing is read again
    }
    assert_eq!(rig.created(A), created);
}

#[test]
fn read_of_an_earlier_incarnation_is_ignored() {
    let mut rig = Rig::waiting();
    let read = rig.pass(SOON).take(any);
    let read = rig.delete_unseen("locks/a/zz").apply(read);
    // While the response travels, our key is deleted, another one is put first, and ours is put again.
    rig.delete("locks/a/a1").contend("locks/a/zz").serve_one(deletes).serve_one(puts);
    rig.deliver(read).serve().nothing_about(1);
}

#[test]
fn deeper_keys_do_not_contend() {
    let mut rig = Rig::warm();
    rig.contend("locks/a/b/c").hold(1, A).contend("locks/b/b/c").contend("locks/d/b/c");
    for (call, names) in [(2, &[B][..]), (3, &[C, "locks/d"])] {
        rig.acquire_as(call, names, Wait::Once).serves(call);
    }
}
