//! Admission: no older contender excludes the key any more (rules P2, P11, P14, P15).

use crate::*;

/// A core that waits for `locks/a` behind `zy` and `zz`, and has read who is before it.
fn third() -> Rig {
    let mut rig = Rig::warm();
    rig.contend("locks/a/zy").contend("locks/a/zz").queue(1, A);
    rig
}

/// A core that has had `locks/a` after others, released it, and still watches it. Now call 2 wants it behind `zx`: its put is under way.
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

/// The watch is often ahead of the answer to a put (rule P14).
#[test]
fn event_ahead_of_the_answer_counts() {
    let mut rig = watching();
    let put = rig.applied(puts);
    rig.delete("locks/a/zx").deliver(put).sends_nothing(); // nothing is read
    assert_eq!(rig.granted(2).owned(2).revision, rig.revision());
}

/// The watch reports one predecessor; a read whose answer is of an earlier state misses the other (rule P21).
#[test]
fn token_is_of_the_state_in_which_the_last_key_was_gone() {
    let mut rig = third();
    let read = rig.delete_unseen("locks/a/zy").pass(SOON).applied(reads); // zz is there
    rig.delete("locks/a/zz").deliver(read);
    assert_eq!(rig.granted(1).owned(1).revision, rig.revision());
}

/// An operator deletes it, and the watch reports that before the put is answered: there must not be two owners.
#[test]
fn key_deleted_before_its_answer_owns_nothing() {
    let mut rig = watching();
    let put = rig.applied(puts);
    rig.delete("locks/a/a1").contend("locks/a/zz").deliver(put);
    rig.delete("locks/a/zx").serve().nothing_about(2); // another is before it now
    rig.delete("locks/a/zz").serves(2);
}

/// The put of a call that has gone is no holder: its outcome decides, whatever the try wants.
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

/// Call 1 wants these names, of which `locks/a` has twenty older contenders.
fn far_back(names: &[&str]) -> (Rig, Vec<String>) {
    let mut rig = Rig::warm();
    let others: Vec<String> = (10..30).map(|n| format!("locks/a/z{n}")).collect();
    others.iter().for_each(|key| _ = rig.contend(key));
    rig.acquire_all(1, names).serve().nothing_about(1);
    (rig, others)
}

/// These contenders go, and the watch reports the last of them.
fn after_the_last(rig: &mut Rig, gone: &[String]) {
    gone.iter().for_each(|key| _ = rig.delete_unseen(key));
    rig.report();
}

/// A watch on all contenders brings an event for each, so a waiter with many predecessors watches the last alone (rule P15).
#[test]
fn distant_waiter_watches_only_its_predecessor() {
    let (mut rig, others) = far_back(&[A]);
    assert_eq!(rig.watched(), ["locks/a/z29"]);
    // The last gives up, which proves nothing (rule P14): the next is watched.
    after_the_last(&mut rig, &others[19..]);
    rig.serve_one(any).nothing_about(1).sends_nothing();
    assert_eq!(rig.watched(), ["locks/a/z28"]);
    // With the head near, all contenders are watched.
    after_the_last(&mut rig, &[&others[..15], &others[18..19]].concat());
    rig.serve().nothing_about(1);
    assert_eq!(rig.watched(), ["locks/a/"]);
    others[15..18].iter().for_each(|key| _ = rig.delete(key));
    rig.granted(1);
}

/// Each range of the family goes through all its keys at etcd. The keys of a group are equally old, and stand in no order.
#[test]
fn one_range_admits_a_distant_waiter() {
    for names in [&[A][..], &["locks/a/b", A]] {
        let (mut rig, others) = far_back(names);
        after_the_last(&mut rig, &others);
        let family = |op: &&Op| matches!(op, Op::Range { prefix, .. } if &**prefix == "locks/a/");
        assert_eq!(operations(rig.next()).iter().filter(family).count(), 1);
        rig.serve_one(any).granted(1).sends_nothing(); // nothing is put anew
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
    // While the answer travels our key goes, another comes first, and ours comes again.
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
