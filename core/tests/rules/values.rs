//! Values of the core: deadlines, and seats in keys.

use etcd_locked_core::{Deadline, Seat};

use crate::*;

fn at(secs: u64) -> Moment {
    Moment::after_boot(Duration::from_secs(secs))
}

#[test]
fn late_extension_does_not_revive() {
    let deadline = Deadline::new(at(10));
    assert!(!deadline.extend(at(10), at(20)));
    assert!(deadline.is_over(at(1)));
    assert_eq!(deadline.stop(), None);
}

#[test]
fn first_cause_of_a_loss_stands() {
    use LossCause::*;
    for first in [Expired, Gone, Overwritten, Wiped, Shutdown, Released] {
        let deadline = Deadline::new(at(10));
        assert_eq!(deadline.lost(at(9)), None);
        for cause in [first, Expired, Gone, Overwritten, Wiped, Shutdown, Released] {
            assert_eq!(deadline.lose(cause), first);
        }
        assert_eq!(deadline.lost(at(20)), Some(first));
        assert!(!deadline.extend(at(1), at(20)));
        assert_eq!(deadline.lost(at(1)), Some(first));
    }
    let deadline = Deadline::new(at(10));
    assert_eq!(deadline.lost(at(10)), Some(Expired));
    assert_eq!(deadline.lose(Gone), Expired);
}

#[test]
fn extension_never_shortens() {
    let deadline = Deadline::new(at(10));
    assert!(deadline.extend(at(1), at(5)));
    assert_eq!(deadline.stop(), Some(at(10)));
    assert!(deadline.extend(at(1), at(12)));
    assert_eq!(deadline.stop(), Some(at(12)));
}

#[test]
fn key_says_its_seat() {
    for (child, seat) in [
        ("694d8a", Seat::Exclusive),
        ("694d8a.r0", Seat::Shared(0)),
        ("694d8a.p0", Seat::Permit(0)),
        ("694d8a.p65535", Seat::Permit(65535)),
        ("694d8a.n0", Seat::Nested { number: 0, shared: false }),
        ("694d8a.n3.r", Seat::Nested { number: 3, shared: true }),
    ] {
        assert_eq!(Seat::of_key(format!("l/a/{child}").as_bytes()), seat, "{child}");
        assert_eq!(Seat::of_key(format!("a0{seat}").as_bytes()), seat);
    }
    // Keys that this library would not write count as exclusive.
    let unknown = "zz .r0 1A.r0 1.r 1.r0.r0 1.p05 1.p+5 1.p65536 1.n3.r0 1.p3.r";
    for child in unknown.split(' ') {
        assert_eq!(Seat::of_key(format!("l/a/{child}").as_bytes()), Seat::Exclusive, "{child}");
    }
}

#[test]
fn older_keys_admit_what_they_leave_room_for() {
    let three = "l/a/1.p0 l/a/1.p2 l/a/2.p0";
    for (mode, admit, exclude) in [
        (Mode::Exclusive, &[""][..], &["l/a/1.r0", "l/a/1.p0"][..]),
        (Mode::Shared, &["l/a/1.r0 l/a/2.r1"], &["l/a/1.r0 l/a/zz", "l/a/1.p0"]),
        (permits(3), &["l/a/1.p0 l/a/1.p2"], &[three, "l/a/1.r0", "l/a/1"]),
        (permits(4), &[three], &[]),
    ] {
        for older in admit.iter().chain(exclude) {
            let keys = older.split_whitespace().map(str::as_bytes);
            let admits = etcd_locked_core::admits(mode, keys);
            assert_eq!(admits, admit.contains(older), "{mode:?} {older}");
        }
    }
}
