//! Trace: the last steps of a schedule, as text.

use std::collections::VecDeque;

use etcd_locked_core::{Compare, Moment, Op, Request};

/// The last steps. Empty unless a failed seed is played again, because text is slower than the steps.
#[derive(Debug)]
pub(crate) struct Trace {
    limit: usize,
    steps: VecDeque<String>,
}

impl Trace {
    /// Keeps the last `limit` steps.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, steps: VecDeque::new() }
    }

    /// Adds an event of one process, or of all.
    pub(crate) fn note(
        &mut self,
        now: Moment,
        process: Option<usize>,
        step: impl FnOnce() -> String,
    ) {
        if self.limit == 0 {
            return;
        }
        if self.steps.len() == self.limit {
            self.steps.pop_front();
        }
        let at = now.since_boot().as_secs_f64() - 1000.0;
        self.steps.push_back(match process {
            Some(n) => format!("{at:10.4} p{n} {}", step()),
            None => format!("{at:10.4} *  {}", step()),
        });
    }

    pub(crate) fn into_steps(self) -> Vec<String> {
        self.steps.into()
    }
}

/// Returns a request in short form.
pub(crate) fn brief(request: &Request) -> String {
    let Request::Txn(txn) = request else {
        return format!("{request:?}");
    };
    let when: Vec<String> = txn
        .when
        .iter()
        .map(|compare| match compare {
            Compare::Created(key, revision) => format!("{key} created at {revision}"),
            Compare::Modified(key, revision) => format!("{key} at {revision}"),
            Compare::Absent(key) => format!("no {key}"),
            Compare::NoneUnder(prefix) => format!("none under {prefix}"),
        })
        .collect();
    let ops = |ops: &[Op]| {
        let ops = ops.iter().map(|op| match op {
            Op::Put { key, lease, .. } => format!("put {key} under {lease:x}"),
            Op::Get { key, .. } => format!("get {key}"),
            Op::Range { prefix, limit, up_to, .. } => format!("range {prefix} {limit:?} {up_to:?}"),
            Op::Delete(key) => format!("delete {key}"),
        });
        ops.collect::<Vec<_>>().join(", ")
    };
    format!("when {} then {} else {}", when.join(", "), ops(&txn.then), ops(&txn.or_else))
}
