//! Models of the combiner: small programs of two or three threads, which loom runs under one schedule after the other.
//!
//! Two threads with one command each run under every schedule (`in_every_schedule`). A third thread, or a third command, makes
//! that millions; there loom runs every schedule with at most [`PREEMPTIONS`] preemptions (`in_most_schedules`).
//!
//! What a model observes is kept outside loom, so that observing adds no schedules. The combiner catches panics, so a model
//! notes a fault where it happens and asserts at the end.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as Notes, MutexGuard as NotesGuard};
use std::time::Duration;

use loom::model::Builder;
use loom::sync::Notify;
use loom::thread;

use super::*;

use Kind::{Echo, End, PanicToHandle, PanicToPerform, Plain, Silent, SlowToHandle, SlowToPerform};

/// How often a schedule of a larger model takes the processor from a thread that could go on.
const PREEMPTIONS: usize = 3;

/// What a command or an effect does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Has no effect.
    Silent,
    /// Has an effect that does nothing else.
    Plain,
    /// Its effect submits a plain command.
    Echo,
    /// Its handling waits until the other thread has returned from its submission.
    SlowToHandle,
    /// As above, its effect.
    SlowToPerform,
    /// Its effect panics.
    PanicToPerform,
    /// The machine panics.
    PanicToHandle,
    /// The machine ends.
    End,
}

/// Submitter and number of a command.
type Tag = (usize, usize);

#[derive(Debug, Default)]
struct Observed {
    submitted: usize,
    dropped: usize,
    handled: Vec<Tag>,
    /// Effects that the machine produced.
    produced: Vec<Tag>,
    performed: Vec<Tag>,
    /// Commands that were handled when an effect had submitted them.
    echoed_at_once: usize,
    machines_dropped: usize,
    performing: bool,
    overlapped: bool,
    /// How often the combiner called for the thread that serves the rest.
    calls: usize,
}

/// One execution of a model.
struct World {
    combiner: Combiner<Model>,
    notes: Arc<Notes<Observed>>,
    /// For each thread: its submission has returned.
    returned: [Notify; 2],
}

struct Command {
    tag: Tag,
    kind: Kind,
    world: Arc<World>,
}

struct Effect {
    tag: Tag,
    kind: Kind,
    world: Arc<World>,
}

struct Model {
    notes: Arc<Notes<Observed>>,
    effects: Vec<Effect>,
    ended: bool,
}

loom::thread_local! {
    static THREAD: std::cell::Cell<usize> = std::cell::Cell::new(0);
}

fn this_thread() -> usize {
    THREAD.with(std::cell::Cell::get)
}

impl Drop for Command {
    fn drop(&mut self) {
        self.world.notes().dropped += 1;
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        notes(&self.notes).machines_dropped += 1;
    }
}

fn notes(of: &Notes<Observed>) -> NotesGuard<'_, Observed> {
    of.lock().unwrap()
}

impl Machine for Model {
    type Command = Command;
    type Effect = Effect;

    fn handle(&mut self, command: Command) {
        let Command { tag, kind, .. } = command;
        notes(&self.notes).handled.push(tag);
        match kind {
            Kind::SlowToHandle => command.world.wait_for_other(),
            Kind::PanicToHandle => resume_unwind(Box::new("on purpose")),
            Kind::End => self.ended = true,
            _ => {}
        }
        if kind != Kind::Silent {
            notes(&self.notes).produced.push(tag);
            let world = Arc::clone(&command.world);
            self.effects.push(Effect { tag, kind, world });
        }
    }

    fn rest(&mut self) {}

    fn has_ended(&self) -> bool {
        self.ended
    }

    fn effects(&mut self) -> &mut Vec<Effect> {
        &mut self.effects
    }

    fn perform(Effect { tag, kind, world }: Effect) {
        {
            let mut notes = world.notes();
            notes.overlapped |= std::mem::replace(&mut notes.performing, true);
            notes.performed.push(tag);
        }
        match kind {
            Kind::SlowToPerform => world.wait_for_other(),
            Kind::Echo => {
                let echo = (tag.0 + 10, tag.1);
                world.submit(echo, Kind::Plain);
                let mut notes = world.notes();
                notes.echoed_at_once += usize::from(notes.handled.contains(&echo));
            }
            _ => {}
        }
        world.notes().performing = false;
        if kind == Kind::PanicToPerform {
            resume_unwind(Box::new("on purpose"));
        }
    }
}

impl World {
    /// With a clock that stands still.
    fn new() -> Arc<Self> {
        Self::with_clock(|| Duration::ZERO)
    }

    /// With a clock that a whole budget passes at every reading.
    fn hurried() -> Arc<Self> {
        let readings = Notes::new(0);
        Self::with_clock(move || {
            let mut readings = readings.lock().unwrap();
            *readings += 1;
            BUDGET * *readings
        })
    }

    fn with_clock(now: impl Fn() -> Duration + Send + Sync + 'static) -> Arc<Self> {
        let observed = Arc::<Notes<Observed>>::default();
        let (calls, machine) = (Arc::clone(&observed), Arc::clone(&observed));
        let combiner = Combiner::new(now, move || notes(&calls).calls += 1);
        combiner.begin(Model { notes: machine, effects: Vec::new(), ended: false });
        Arc::new(Self { combiner, notes: observed, returned: [Notify::new(), Notify::new()] })
    }

    fn notes(&self) -> NotesGuard<'_, Observed> {
        notes(&self.notes)
    }

    fn submit(self: &Arc<Self>, tag: Tag, kind: Kind) -> bool {
        self.notes().submitted += 1;
        let world = Arc::clone(self);
        self.combiner.submit(Command { tag, kind, world })
    }

    fn wait_for_other(&self) {
        self.returned[1 - this_thread()].wait();
    }

    /// Runs a thread for each list; each submits the commands in its list. The first list is this thread's.
    fn run<const N: usize>(self: &Arc<Self>, lists: [&'static [Kind]; N]) -> Vec<bool> {
        let submit_all = |world: Arc<Self>, thread: usize, kinds: &[Kind]| -> bool {
            THREAD.with(|it| it.set(thread));
            let mut accepted = true;
            for (nth, kind) in kinds.iter().enumerate() {
                accepted = world.submit((thread, nth), *kind);
                if let Some(returned) = world.returned.get(thread) {
                    returned.notify();
                }
            }
            accepted
        };
        let threads: Vec<_> = (1..N)
            .map(|thread| {
                let world = Arc::clone(self);
                thread::spawn(move || submit_all(world, thread, lists[thread]))
            })
            .collect();
        let mut accepted = vec![submit_all(Arc::clone(self), 0, lists[0])];
        accepted.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
        accepted
    }

    /// Submits commands as the called thread does: one at each call, until one is refused.
    fn serve_calls(self: &Arc<Self>) {
        while std::mem::take(&mut self.notes().calls) > 0 {
            if !self.submit((9, 0), Kind::Plain) {
                return;
            }
        }
    }

    /// Asserts what is so after every execution.
    fn check(&self) {
        let notes = self.notes();
        assert_eq!(notes.dropped, notes.submitted, "a command was lost");
        assert!(!notes.overlapped, "two threads performed effects at once");
        assert_eq!(notes.performed, notes.produced, "effects: once, in order");
        for thread in 0..3 {
            let of = notes.handled.iter().filter(|tag| tag.0 == thread);
            assert!(of.is_sorted_by(|a, b| a.1 < b.1), "{:?}", notes.handled);
        }
    }

    /// As [`check`](Self::check), where the machine handles all.
    fn check_all_handled(&self) {
        self.check();
        let notes = self.notes();
        assert_eq!(notes.handled.len(), notes.submitted, "some not handled");
        assert_eq!(notes.machines_dropped, 0);
        assert_eq!(notes.calls, 0);
    }
}

fn in_every_schedule(model: impl Fn() + Send + Sync + 'static) {
    Builder::new().check(model);
}

fn in_most_schedules(model: impl Fn() + Send + Sync + 'static) {
    let mut explorer = Builder::new();
    explorer.preemption_bound = Some(PREEMPTIONS);
    explorer.check(model);
}

#[test]
fn commands_of_two_threads_are_handled_once() {
    in_every_schedule(|| {
        let world = World::new();
        assert_eq!(world.run([&[Silent], &[Silent]]), [true; 2]);
        world.check_all_handled();
    });
}

#[test]
fn commands_of_three_threads_are_handled_once() {
    in_most_schedules(|| {
        let world = World::new();
        assert_eq!(world.run([&[Plain], &[Silent], &[Plain]]), [true; 3]);
        world.check_all_handled();
    });
}

#[test]
fn commands_of_a_thread_are_handled_in_order() {
    in_most_schedules(|| {
        let world = World::new();
        world.run([&[Silent, Silent, Silent], &[Silent, Silent]]);
        world.check_all_handled();
    });
}

#[test]
fn effects_are_performed_once_and_in_order() {
    in_every_schedule(|| {
        let world = World::new();
        world.run([&[Plain], &[Plain]]);
        world.check_all_handled();
    });
}

#[test]
fn effects_may_submit_commands() {
    in_most_schedules(|| {
        let world = World::new();
        assert_eq!(world.run([&[Echo, Plain], &[Echo]]), [true; 2]);
        world.check_all_handled();
    });
}

#[test]
fn effects_find_the_machine_unlocked() {
    in_every_schedule(|| {
        let world = World::new();
        world.run([&[Echo]]);
        world.check_all_handled();
        assert_eq!(world.notes().echoed_at_once, 1);
    });
}

#[test]
fn no_submitter_waits_for_the_machine() {
    in_every_schedule(|| {
        let world = World::new();
        world.run([&[SlowToHandle], &[Plain]]);
        world.check_all_handled();
    });
}

#[test]
fn no_submitter_waits_for_an_effect() {
    in_every_schedule(|| {
        let world = World::new();
        world.run([&[SlowToPerform], &[Plain]]);
        world.check_all_handled();
    });
}

#[test]
fn panic_in_an_effect_loses_no_other() {
    in_most_schedules(|| {
        let world = World::new();
        world.run([&[PanicToPerform, Plain], &[PanicToPerform]]);
        world.check_all_handled();
    });
}

#[test]
fn ended_machine_drops_later_commands() {
    in_most_schedules(|| {
        let world = World::new();
        world.run([&[Plain, End], &[Echo, Plain]]);
        assert!(!world.submit((3, 0), Plain));
        world.check();
        assert_eq!(world.notes().machines_dropped, 1);
    });
}

#[test]
fn panicked_machine_is_dropped_with_its_commands() {
    in_most_schedules(|| {
        let world = World::new();
        world.run([&[Plain, PanicToHandle], &[Plain, Plain]]);
        assert!(!world.submit((3, 0), Plain));
        world.check();
        assert_eq!(world.notes().machines_dropped, 1);
    });
}

#[test]
fn visitor_without_time_calls_for_the_rest() {
    let called = Arc::<AtomicBool>::default();
    let in_some = Arc::clone(&called);
    in_most_schedules(move || {
        let world = World::hurried();
        world.run([&[Plain], &[Plain; STRIDE]]);
        in_some.fetch_or(world.notes().calls > 0, Ordering::Relaxed);
        world.serve_calls();
        world.check_all_handled();
    });
    assert!(called.load(Ordering::Relaxed), "no schedule was that busy");
}

/// The second thread is the one that serves the rest, and leaves after the end.
#[test]
fn last_effects_need_no_called_thread() {
    in_most_schedules(|| {
        let world = World::hurried();
        let accepted = world.run([&[Plain], &[Plain, Plain, Plain, Plain, End, Silent]]);
        if accepted[1] {
            world.serve_calls();
        }
        world.check();
        assert_eq!(world.notes().machines_dropped, 1);
    });
}
