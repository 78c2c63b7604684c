//! Guards: held keys are watched after one second of holding, regardless of reads meanwhile (rule P18).

use crate::*;

/// Lets time pass. etcd responds to everything but reads.
fn live_without_reads(rig: &mut Rig, time: u64) {
    for _ in 0..time / 50 {
        rig.pass(millis(50)).serve_all(|request| !reads(request));
    }
}

fn is_guarded(rig: &Rig) -> bool {
    rig.watched().contains(&"locks/a/a1")
}

#[test]
fn key_that_is_read_again_in_its_first_second_is_watched() {
    let mut rig = Rig::reading();
    rig.pass(millis(200)).share(2, A, Mode::Shared, Wait::Forever);
    rig.fail_all(unavailable); // this read was to show whether another process waits
    rig.live(millis(500)).granted(2);
    assert!(!is_guarded(&rig));
    rig.live(SECOND);
    assert!(is_guarded(&rig));
}

#[test]
fn key_that_is_being_read_after_a_second_is_watched() {
    let mut rig = Rig::holding();
    rig.acquire(2, A).acquire(3, A);
    live_without_reads(&mut rig, 100);
    rig.release(1); // the next call needs a read
    live_without_reads(&mut rig, 950);
    rig.release(2).granted(3);
    live_without_reads(&mut rig, 50);
    rig.serve();
    assert!(!is_guarded(&rig), "held for less than a second");
    rig.live(SECOND);
    assert!(is_guarded(&rig));
}
