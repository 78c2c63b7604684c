//! Small stack: an engine's thread may have little, so the core runs on little in every rule test.

use std::panic::resume_unwind;
use std::thread;

use etcd_locked_core::{Core, Input, Moment, Output};

/// Bytes.
const STACK: usize = 256 << 10;

/// Hands an input to a core, and takes its outputs.
pub(crate) fn handle(core: &mut Core, now: Moment, input: Input) -> Vec<Output> {
    let turn = || {
        core.handle(now, input);
        std::iter::from_fn(|| core.poll()).collect()
    };
    thread::scope(|scope| {
        let thread =
            thread::Builder::new().stack_size(STACK).spawn_scoped(scope, turn).expect("a thread");
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}
