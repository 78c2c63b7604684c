//! Small stack: every rule test runs the core on one, because an engine's thread may have little.

use std::panic::resume_unwind;
use std::thread;

use etcd_locked_core::{Core, Input, Moment, Output, taken};

/// In bytes.
const STACK: usize = 256 << 10;

/// Passes an input to a core. Returns its outputs, and the steps that it took.
pub(crate) fn handle(core: &mut Core, now: Moment, input: Input) -> (Vec<Output>, u64) {
    let turn = || {
        core.handle(now, input);
        (std::iter::from_fn(|| core.poll()).collect(), taken())
    };
    thread::scope(|scope| {
        let thread =
            thread::Builder::new().stack_size(STACK).spawn_scoped(scope, turn).expect("a thread");
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}
