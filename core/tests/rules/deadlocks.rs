//! Deadlocks: one call of each cycle is refused, and none without a cycle (rule P38).

use crate::*;

/// The call that closes a cycle is refused within this time.
const CUT: Duration = Duration::from_secs(5);

/// Each process holds its own name, and its task wants the name of the next process.
fn ring(processes: u64) -> Town {
    let names = ["n0", "n1", "n2", "n3"];
    let mut town = Town::holding(&names[..processes as usize]);
    for n in 0..processes {
        let next = names[((n + 1) % processes) as usize];
        town.ask(n as usize, 10 + n, &[next], &[n]);
    }
    town
}

/// One call was refused. Its task releases its lock, and all others are granted, one after the other.
fn unwinds(town: &mut Town, processes: u64) {
    let mut free = town.deadlocks_within(CUT) - 10;
    town.release(free);
    for _ in 1..processes {
        free = (free + processes - 1) % processes;
        town.grants(10 + free).release(10 + free).release(free);
    }
    town.live(10 * SECOND);
    assert_eq!(town.deadlocked().len(), 1);
    assert!(town.processes.iter().all(|process| process.core.leftovers().is_none()));
}

/// One process holds `a` with call 0 and `b` with call 1.
fn both_inside() -> Town {
    let mut town = Town::holding(&["a"]);
    town.take(0, 1, &["b"]);
    town
}

#[test]
fn one_call_of_a_cycle_is_refused_within_five_seconds() {
    for processes in 2..=4 {
        for at_once in [false, true] {
            let mut town = ring(processes);
            if at_once {
                town.withhold = is_abort;
                town.until(|town| town.withheld().len() == processes as usize).let_through();
            }
            unwinds(&mut town, processes);
        }
    }
}

/// Returns the keys and records of the blockers in this call's refusal, which says which of its names is blocked.
#[track_caller]
fn cycle_of(town: &Town, call: CallId, at: usize) -> Vec<(&str, String)> {
    let refusals = town.refusals();
    let [(refused, why @ Refused::Deadlock { name, cycle })] = &refusals[..] else {
        panic!("{refusals:?}");
    };
    assert_eq!((*refused, *name, why.name()), (call, at, at));
    cycle.iter().map(|blocker| (&*blocker.key, rig::text(Some(&blocker.record)))).collect()
}

#[test]
fn youngest_call_is_refused_with_the_whole_cycle() {
    let mut town = ring(3);
    town.within(3 * SECOND, |town| !town.refusals().is_empty());
    let keys = ["locks/n0/a1", "locks/n1/a2", "locks/n2/a3"];
    for (call, (key, record)) in cycle_of(&town, 12, 0).into_iter().enumerate() {
        assert_eq!(key, keys[call]);
        assert!(record.contains(&format!("\"call\":{call}")), "{record}");
    }
}

#[test]
fn cycle_inside_a_process_is_refused_at_once() {
    let mut town = both_inside();
    town.ask_as(0, 10, Mode::Exclusive, &["b"], &[0], Wait::For(CUT));
    assert!(town.refusals().is_empty());
    let requests = town.requests();
    town.ask(0, 11, &["c", "a"], &[1]);
    assert_eq!(town.requests(), requests, "no request");
    let records: Vec<String> =
        cycle_of(&town, 11, 1).into_iter().map(|(_, record)| record).collect();
    assert_eq!(records, ["{\"call\":0}", "{\"call\":10}", "{\"call\":1}"]);
    town.release(1).live(SECOND).granted(&[10]);
}

/// The process was delayed, so the call arrives before due timers fire.
#[test]
fn wait_that_is_over_closes_no_cycle_in_a_process() {
    for (wait, held_up) in [(Wait::For(2 * SECOND), 5 * SECOND), (Wait::Forever, 40 * SECOND)] {
        let mut town = both_inside();
        town.ask_as(0, 10, Mode::Exclusive, &["b"], &[0], wait);
        town.now = town.now + held_up;
        town.ask(0, 11, &["a"], &[1]);
        let deadlock = |(_, why): &(CallId, &Refused)| matches!(why, Refused::Deadlock { .. });
        assert!(!town.refusals().iter().any(deadlock), "{:?}", town.refusals());
        town.cancel(10).release(0).grants(11);
    }
}

#[test]
fn nested_call_passes_a_group_that_has_no_keys() {
    let mut town = Town::holding(&["a"]);
    town.ask(0, 1, &["b", "a"], &[]).ask(0, 10, &["b"], &[0]);
    town.within(2 * SECOND, |town| town.is_granted(10)).release(10).release(0).grants(1);
    assert!(town.refusals().is_empty());
}

/// The group's task holds nothing. The group is granted even if other calls take over what the nested call's task held.
#[test]
fn nested_call_behind_a_group_is_refused() {
    for names in [["a", "b"], ["b", "a"]] {
        let mut town = Town::of(2);
        town.take(0, 0, &["a"]).ask(1, 1, &names, &[]);
        town.ask(0, 10, &["b"], &[0]).ask(0, 2, &["a"], &[]);
        assert_eq!(town.deadlocks_within(CUT), 10);
        town.release(0).granted(&[2]).ask(0, 3, &["a"], &[]).live(SECOND);
        town.release(2).granted(&[1]);
    }
}

/// Each puts its keys in one transaction, and is ahead of the other one's task at one name.
#[test]
fn cycle_of_nested_groups_refuses_one_call() {
    let mut town = Town::holding(&["a", "b"]);
    town.ask(0, 10, &["b", "c"], &[0]).ask(1, 11, &["a", "c"], &[1]);
    assert_eq!(town.deadlocks_within(CUT), 11);
    assert_eq!(town.keys("c"), ["locks/c/a1"]);
}

/// One call's key starts with the other call's name.
#[test]
fn detects_cycle_through_nested_names() {
    let mut town = Town::holding(&["b", "a/c"]);
    town.ask(0, 10, &["a", "a/c"], &[0]).ask(1, 11, &["a"], &[1]).deadlocks_within(CUT);
}

/// Call 10 wants `b`, which process 1 holds, behind call 3 of its own process.
#[test]
fn detects_cycle_through_a_wait_queue() {
    let mut town = Town::holding(&["a", "b"]);
    town.ask(0, 3, &["b"], &[]).ask(0, 10, &["b"], &[0]);
    town.ask(1, 11, &["a"], &[1]).deadlocks_within(CUT);
}

/// The waiting call of process `gone` is cancelled, and process 1 aborts.
#[test]
fn cycle_that_ends_before_its_abort_refuses_no_call() {
    for (gone, lets_go) in [(0, true), (0, false), (1, true), (1, false)] {
        let mut town = ring(2);
        town.withholds(is_abort);
        assert_eq!(town.withheld()[0].0, 1);
        town.cancel(10 + gone);
        if lets_go {
            town.release(gone);
        }
        town.let_through().live(CUT);
        assert!(town.refusals().is_empty());
        assert_eq!(town.is_granted(11 - gone), lets_go);
        if !lets_go {
            town.release(gone).live(SECOND).granted(&[11 - gone]);
        }
    }
}

/// The key of the call that waited for `b` still exists. What it lists, which its task held, is not handed over.
#[test]
fn cancelled_wait_makes_no_cycle() {
    for (name, served) in [("a", 3), ("b", 11)] {
        let mut town = Town::holding(&["a", "b"]);
        town.ask(0, 10, &["b"], &[0]).ask(0, 3, &[name], &[]).live(SECOND);
        let first = town.created("locks/a/a1");
        town.withhold = |request| {
            keys_deleted(request).iter().any(|key| key.starts_with("locks/b/"))
                && !is_abort(request)
        };
        town.cancel(10).release(0).ask(1, 11, &["a"], &[1]).live(CUT);
        assert!(town.refusals().is_empty(), "{:?}", town.refusals());
        town.granted(&[served]);
        assert!(town.created("locks/a/a1") != first);
    }
}

/// etcd carries out the abort, or receives it only after the barrier that makes it void.
#[test]
fn abort_without_a_response_refuses_no_call() {
    for carried_out in [true, false] {
        let mut town = ring(2);
        let late = town.withholds(is_abort).withheld()[0].1.clone();
        town.lose(carried_out).live(SECOND / 2);
        let before = town.store.revision();
        town.store.apply(town.now, &late).expect("an answer");
        assert_eq!(town.store.revision(), before, "it does nothing");
        assert!(town.refusals().is_empty());
        assert_eq!(town.keys("n0").len(), 2, "it still waits, or waits again");
        unwinds(&mut town, 2);
    }
}

/// Their tasks hold nothing, or the waits are short.
#[test]
fn calls_outside_cycles_send_nothing_about_cycles() {
    let mut town = Town::holding(&["a", "b"]);
    town.withhold = |request| is_abort(request) || is_search(request);
    town.ask(0, 3, &["b"], &[]).ask(1, 4, &["a", "c"], &[]);
    town.ask(1, 10, &["c"], &[1]).live(SECOND * 9 / 10).release(0).grants(4);
    town.release(4).grants(10).live(CUT);
    assert!(town.withheld().is_empty(), "{:?}", town.withheld());
}

#[test]
fn waiting_key_of_a_nested_call_lists_what_its_task_holds() {
    let mut town = Town::of(2);
    town.take(0, 0, &["a", "c"]).take(0, 2, &["d"]).take(1, 1, &["b"]).ask(0, 10, &["b"], &[0, 2]);
    let mut held = town.holds("locks/b/a1");
    held.sort();
    assert_eq!(held, ["locks/a/a1", "locks/c/a1", "locks/d/a1"]);
    town.release(1).grants(10).live(2 * SECOND);
    assert!(town.holds("locks/b/a1").is_empty(), "it no longer waits");
}

/// The second call waits behind the first one of its process, which has a key.
#[test]
fn nested_call_puts_its_own_key_after_a_second() {
    for (mode, key) in [(Mode::Exclusive, "locks/b/a1.n0"), (Mode::Shared, "locks/b/a1.n0.r")] {
        let mut town = Town::holding(&["a", "b"]);
        town.ask(0, 3, &["b"], &[]);
        town.ask_as(0, 10, mode, &["b"], &[0], Wait::Forever).live(SECOND * 9 / 10);
        assert_eq!(town.keys("b").len(), 2);
        town.live(SECOND / 2);
        assert_eq!(town.keys("b")[2], key);
        assert_eq!(town.holds(key), ["locks/a/a1"]);
        town.cancel(10);
        assert_eq!(town.keys("b").len(), 2, "it is deleted with its call");
    }
}

#[test]
fn nested_call_that_gets_the_lock_by_hand_over_deletes_its_key() {
    let mut town = both_inside();
    town.ask(0, 10, &["b"], &[0]).live(2 * SECOND);
    assert_eq!(town.keys("b"), ["locks/b/a1", "locks/b/a1.n0"]);
    town.release(1).granted(&[10]);
    assert_eq!(town.keys("b"), ["locks/b/a1"]);
}

#[test]
fn nested_call_neither_leaves_nor_inherits_a_waiting_key() {
    for (holds, heir_holds) in [(&[0][..], &[][..]), (&[], &[0])] {
        let mut town = Town::holding(&["a", "b"]);
        let first = town.ask(0, 10, &["b"], holds).created("locks/b/a1");
        town.ask(0, 11, &["b"], heir_holds).cancel(10);
        assert!(town.created("locks/b/a1") > first);
    }
}

#[test]
fn search_that_reaches_a_bound_reports_it_once() {
    let mut town = Town::holding(&["a", "b"]);
    (0..Search::CONTENDERS).for_each(|n| _ = town.contend(&format!("locks/a/other{n}")));
    town.ask(0, 10, &["b"], &[0]).live(CUT);
    assert_eq!(town.outputs().filter(|it| matches!(it, Output::Bounded)).count(), 1);
}

#[test]
fn search_follows_sixteen_waits_at_most() {
    for (waits, finds) in [(16, true), (17, false)] {
        let [old, young] = [1, 2].map(|revision| Revision::new(revision).expect("not 0"));
        let own = (format!("locks/{waits}/waits").into(), young);
        let mut search = Search::new("locks/", vec![own], vec![("locks/0/held".into(), old)]);
        let cycle = (1..=waits).find_map(|next| {
            let family = search.wanted.pop()?;
            let list = format!(",\"keys\":[[\"locks/{next}/held\",1]]}}");
            search.answered(&family, vec![records::kv(&format!("{family}waits"), &list, young)])
        });
        assert_eq!(cycle.is_some(), finds);
    }
}

#[test]
fn searches_that_etcd_refuses_together_are_sent_again_alone() {
    let mut rig = Rig::warm();
    rig.hold(8, B).hold(9, C).contend("locks/a/zz").contend("locks/d/zz");
    rig.nest(1, &[A], 8).nest(2, &["locks/d"], 9);
    while rig.under_way(is_search) == 0 {
        rig.pass(STEP).serve_all(|request| !is_search(request));
    }
    for left in [2, 1] {
        rig.answer(is_search, Err(refused(Refusal::PermissionDenied)));
        assert_eq!(rig.under_way(is_search), left);
    }
}
