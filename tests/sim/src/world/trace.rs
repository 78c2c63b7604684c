//! The last steps before a failure, in words.

use std::collections::VecDeque;

use crate::clock::Moment;
use crate::core::request::{Compare, Op, Request};

/// How many steps are told, unless `STEPS` says otherwise.
const STEPS: usize = 60;

/// What happened last. Silent unless the seed has failed before: words cost more than steps.
#[derive(Debug)]
pub(crate) struct Trace {
    seed: u64,
    /// How many steps to tell.
    limit: usize,
    steps: VecDeque<String>,
}

impl Trace {
    pub(crate) fn new(seed: u64, loud: bool) -> Self {
        let limit = std::env::var("STEPS")
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(STEPS);
        Self {
            seed,
            limit: if loud { limit } else { 0 },
            steps: VecDeque::new(),
        }
    }

    pub(crate) fn note(&mut self, now: Moment, process: usize, step: impl FnOnce() -> String) {
        if self.limit == 0 {
            return;
        }
        if self.steps.len() == self.limit {
            self.steps.pop_front();
        }
        self.steps.push_back(format!(
            "{:10.4} p{process} {}",
            now.since_boot().as_secs_f64(),
            step()
        ));
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if self.limit > 0 && std::thread::panicking() {
            eprintln!("seed {}:", self.seed);
            for step in &self.steps {
                eprintln!("{step}");
            }
        }
    }
}

/// A request in one line.
pub(crate) fn brief(request: &Request) -> String {
    let Request::Txn(txn) = request else {
        return format!("{request:?}");
    };
    let when: Vec<String> = txn
        .when
        .iter()
        .map(|compare| match compare {
            Compare::CreateRevision { key, revision } => format!("{key} created at {revision}"),
            Compare::ModRevision { key, revision } => format!("{key} at {revision}"),
            Compare::NoneUnder { prefix } => format!("none under {prefix}"),
        })
        .collect();
    let ops = |ops: &[Op]| {
        let ops = ops.iter().map(|op| match op {
            Op::Put { key, lease, .. } => format!("put {key} under {lease:x}"),
            Op::Get { key } => format!("get {key}"),
            Op::Range {
                prefix,
                limit,
                older_than,
                ..
            } => format!("range {prefix} {limit} {older_than:?}"),
            Op::Delete { key } => format!("delete {key}"),
        });
        ops.collect::<Vec<_>>().join(", ")
    };
    format!(
        "when {} then {} else {}",
        when.join(", "),
        ops(&txn.then),
        ops(&txn.or_else)
    )
}
