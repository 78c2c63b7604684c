//! Guards: what calls hold is watched once one has held it for a second, whatever was read meanwhile (rule P18).

use std::time::Duration;

use etcd_locked_core::{Mode, Request, Wait};
use etcd_locked_sim::etcd::unavailable;

use crate::rig::{Rig, TTL, reads};

/// Time passes, and etcd answers all but what is such.
fn live_but(rig: &mut Rig, millis: u64, such: fn(&Request) -> bool) {
    for _ in 0..millis / 50 {
        rig.pass(Duration::from_millis(50));
        while let Some(request) = rig.find(|request| !such(request)) {
            rig.carry_out(request);
        }
    }
}

fn is_guarded(rig: &Rig) -> bool {
    rig.watched().contains(&"locks/a/a1")
}

#[test]
fn key_that_is_read_again_in_its_first_second_is_watched() {
    let mut rig = Rig::warm();
    rig.read_for(1, "locks/a", TTL);
    rig.pass(Duration::from_millis(200));
    rig.share(2, "locks/a", Mode::Shared, Wait::Forever);
    rig.fail_all(unavailable); // it was to show whether another process waits
    rig.live(Duration::from_millis(500));
    rig.granted(2);
    assert!(!is_guarded(&rig));
    rig.live(Duration::from_secs(1));
    assert!(is_guarded(&rig));
}

#[test]
fn key_that_is_being_read_after_a_second_is_watched() {
    let mut rig = Rig::warm();
    rig.hold(1, "locks/a");
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.acquire(3, "locks/a", Wait::Forever);
    live_but(&mut rig, 100, reads);
    rig.release(1); // the next one's turn wants a read
    live_but(&mut rig, 950, reads);
    rig.release(2);
    rig.granted(3);
    live_but(&mut rig, 50, reads);
    rig.serve();
    assert!(!is_guarded(&rig), "for less than a second");
    rig.live(Duration::from_secs(1));
    assert!(is_guarded(&rig));
}
