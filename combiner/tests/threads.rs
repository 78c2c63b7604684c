//! The combiner on real threads, with std's locks: what the models show for three commands, for a hundred thousand.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::thread;
use std::time::Duration;

use etcd_locked_combiner::{BUDGET, Combiner, Machine};

type Effect = Box<dyn FnOnce() + Send>;
type Handle = Box<dyn FnMut(Command) -> Option<Effect> + Send>;

/// A machine that does what a test gives it.
struct Given {
    handle: Handle,
    effects: Vec<Effect>,
    ended: bool,
}

/// Submitter and number; counts its drop.
struct Command(usize, usize, Arc<AtomicUsize>);

const END: usize = usize::MAX;
const PANIC: usize = usize::MAX - 1;

impl Drop for Command {
    fn drop(&mut self) {
        self.2.fetch_add(1, Ordering::Relaxed);
    }
}

impl Given {
    fn new(handle: impl FnMut(Command) -> Option<Effect> + Send + 'static) -> Self {
        Self { handle: Box::new(handle), effects: Vec::new(), ended: false }
    }
}

impl Machine for Given {
    type Command = Command;
    type Effect = Effect;

    fn handle(&mut self, command: Command) {
        match command.1 {
            END => self.ended = true,
            PANIC => resume_unwind(Box::new("on purpose")),
            _ => self.effects.extend((self.handle)(command)),
        }
    }

    fn rest(&mut self) {}

    fn has_ended(&self) -> bool {
        self.ended
    }

    fn effects(&mut self) -> &mut Vec<Effect> {
        &mut self.effects
    }

    fn perform(effect: Effect) {
        effect();
    }
}

fn stopped_clock() -> Duration {
    Duration::ZERO
}

#[test]
fn commands_and_effects_of_many_threads_keep_their_order() {
    const EACH: usize = 30_000;
    let handled = Arc::<Mutex<Vec<(usize, usize)>>>::default();
    let performed = Arc::<Mutex<Vec<(usize, usize)>>>::default();
    let dropped = Arc::<AtomicUsize>::default();
    let (call, calls) = mpsc::channel();
    let caller = call.clone();
    let start = std::time::Instant::now();
    let combiner =
        Combiner::new(move || start.elapsed(), move || caller.send(()).unwrap_or_default());
    let (seen, done) = (Arc::clone(&handled), Arc::clone(&performed));
    combiner.begin(Given::new(move |command| {
        let tag = (command.0, command.1);
        seen.lock().unwrap().push(tag);
        let done = Arc::clone(&done);
        Some(Box::new(move || done.lock().unwrap().push(tag)))
    }));
    let submit = |who, what| combiner.submit(Command(who, what, Arc::clone(&dropped)));
    thread::scope(|scope| {
        let submit = &submit;
        scope.spawn(move || while calls.recv().is_ok() && submit(3, 0) {});
        let submitters = [0, 1, 2]
            .map(|who| scope.spawn(move || (1..=EACH).for_each(|what| assert!(submit(who, what)))));
        for submitter in submitters {
            submitter.join().unwrap();
        }
        submit(3, END);
        call.send(()).unwrap();
    });
    let handled = handled.lock().unwrap();
    for who in 0..3 {
        let of = handled.iter().filter(|tag| tag.0 == who);
        assert!(of.map(|tag| tag.1).eq(1..=EACH), "lost, or out of order");
    }
    assert_eq!(*handled, *performed.lock().unwrap());
}

#[test]
fn ended_or_panicked_machine_is_dropped_with_its_commands() {
    for end in [END, PANIC] {
        let combiner = Combiner::new(stopped_clock, || {});
        let dropped = Arc::default();
        let submit = |what| combiner.submit(Command(0, what, Arc::clone(&dropped)));
        assert!(!submit(1), "before it has begun");
        let machine = Arc::new(());
        let alive = Arc::downgrade(&machine);
        combiner.begin(Given::new(move |_| {
            let _ = &machine;
            None
        }));
        assert!(submit(1));
        assert!(submit(end));
        assert_eq!(alive.strong_count(), 0);
        assert!(!submit(2));
        assert_eq!(dropped.load(Ordering::Relaxed), 4);
    }
}

/// A combiner whose commands have an effect: it submits the command with the next lower number.
fn countdown(
    now: impl Fn() -> Duration + Send + Sync + 'static,
    call: impl Fn() + Send + Sync + 'static,
) -> (Arc<Combiner<Given>>, Arc<AtomicUsize>) {
    let combiner = Arc::new(Combiner::new(now, call));
    let (handled, own) = (Arc::<AtomicUsize>::default(), Arc::downgrade(&combiner));
    let count = Arc::clone(&handled);
    combiner.begin(Given::new(move |command| {
        count.fetch_add(1, Ordering::Relaxed);
        let own: Weak<Combiner<Given>> = own.clone();
        let next = command.1.checked_sub(1)?;
        Some(Box::new(move || {
            let dropped = Arc::clone(&command.2);
            let submitted = own.upgrade().map(|it| it.submit(Command(0, next, dropped)));
            assert_eq!(submitted, Some(true));
        }))
    }));
    (combiner, handled)
}

#[test]
fn effects_that_submit_need_no_deeper_stack() {
    const MANY: usize = 100_000;
    let run = || {
        let (combiner, handled) = countdown(stopped_clock, || {});
        assert!(combiner.submit(Command(0, MANY, Arc::default())));
        assert_eq!(handled.load(Ordering::Relaxed), MANY + 1);
    };
    let small = thread::Builder::new().stack_size(128 * 1024).spawn(run);
    small.unwrap().join().unwrap();
}

#[test]
fn visitor_hands_over_once_its_budget_is_spent() {
    let (time, calls) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let called = Arc::clone(&calls);
    // A tenth of the budget passes between readings.
    let now = move || BUDGET / 10 * u32::try_from(time.fetch_add(1, Ordering::Relaxed)).unwrap();
    let (combiner, handled) = countdown(now, move || {
        called.fetch_add(1, Ordering::Relaxed);
    });
    assert!(combiner.submit(Command(0, 1_000_000, Arc::default())));
    assert!(handled.load(Ordering::Relaxed) < 100, "kept for long");
    assert_eq!(calls.load(Ordering::Relaxed), 1, "for the rest");
}

#[test]
fn command_that_is_alone_reads_no_clock() {
    let combiner = Combiner::new(|| panic!("the clock is read"), || {});
    combiner.begin(Given::new(|_| Some(Box::new(|| {}))));
    for what in 1..10 {
        assert!(combiner.submit(Command(0, what, Arc::default())));
    }
}

#[test]
fn panics_in_drops_reach_no_submitter() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            resume_unwind(Box::new("on purpose"));
        }
    }
    let combiner = Combiner::new(stopped_clock, || {});
    let panics = Panics;
    combiner.begin(Given::new(move |_| {
        let _ = &panics;
        None
    }));
    assert!(combiner.submit(Command(0, END, Arc::default())));
    assert!(!combiner.submit(Command(0, 1, Arc::default())));
}
