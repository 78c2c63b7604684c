//! Coverage of a run, so that no run passes because too little happened in it.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use crate::op::Op;
use crate::side::Answer;

#[derive(Clone, Debug, Default)]
pub(crate) struct Coverage {
    /// Operations by kind, and how many of them were refused.
    kinds: BTreeMap<&'static str, (u64, u64)>,
    /// Refusals by code and message.
    refusals: BTreeMap<String, u64>,
    /// Facets of answers.
    facets: BTreeMap<&'static str, u64>,
}

/// Parts of refusals, each of which both sides must have given. The comparison of the sides checks the whole messages.
const REFUSALS: &[&str] = &[
    "key is not provided",
    "duplicate key",
    "too many operations",
    "has been compacted",
    "is a future revision",
    "requested lease not found",
    "lease already exists",
    "too large lease TTL",
    "value is provided",
    "lease is provided",
    "key not found",
    "duplicate watch ID",
    "watch ended: ",
    "lease not found",
];

/// Facets that both sides must have shown.
const FACETS: &[&str] = &[
    "range: found",
    "range: found in the past",
    "range: cut by the limit",
    "range: only counted",
    "range: several sorted",
    "range: cut by bounds of revision",
    "put: with the previous value",
    "put: value ignored",
    "put: lease ignored",
    "put: with a lease",
    "delete: several",
    "delete: nothing",
    "delete: with the previous values",
    "txn: compared, and true",
    "txn: compared, and false",
    "txn: several answers",
    "txn: answers of one within",
    "txn: as many as may be",
    "compact: done",
    "grant: id chosen by etcd",
    "grant: more than was asked for",
    "revoke: keys went with it",
    "time-to-live: of none",
    "time-to-live: with keys",
    "keep-alive: kept",
    "keep-alive: of one that has gone",
    "leases: several",
    "watch: from the past",
    "watch: from the future",
    "watch: cancelled",
    "watch: event of a put",
    "watch: event of a delete",
    "watch: with the previous value",
    "watch: ended by compaction",
    "watch: several on a stream",
    "watch: progress",
];

impl Coverage {
    pub(crate) fn count(&mut self, op: &Op, answer: &Answer) {
        let kind = self.kinds.entry(op.kind()).or_default();
        kind.0 += 1;
        if let Some(refusal) = &answer.refusal {
            kind.1 += 1;
            *self.refusals.entry(refusal.clone()).or_default() += 1;
        }
        for facet in &answer.facets {
            self.facet(facet);
        }
    }

    fn facet(&mut self, facet: &'static str) {
        *self.facets.entry(facet).or_default() += 1;
    }

    /// Counts the facets of the events that the watches of a case received.
    pub(crate) fn watched(&mut self, received: &str) {
        for (facet, sign) in [
            ("watch: event of a put", "\n  put "),
            ("watch: event of a delete", "\n  delete "),
            ("watch: with the previous value", ", before: "),
            ("watch: ended by compaction", "ended compacted"),
        ] {
            if received.contains(sign) {
                self.facet(facet);
            }
        }
        for stream in 0..2 {
            if received.matches(&format!("on stream {stream} received")).count() > 1 {
                self.facet("watch: several on a stream");
            }
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        for (kind, (all, refused)) in other.kinds {
            let sum = self.kinds.entry(kind).or_default();
            *sum = (sum.0 + all, sum.1 + refused);
        }
        for (refusal, count) in other.refusals {
            *self.refusals.entry(refusal).or_default() += count;
        }
        for (facet, count) in other.facets {
            *self.facets.entry(facet).or_default() += count;
        }
    }

    pub(crate) fn operations(&self) -> u64 {
        self.kinds.values().map(|(all, _)| all).sum()
    }

    /// Lists the wanted refusals and facets that did not occur.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        let no_refusal = |part: &&&str| !self.refusals.keys().any(|it| it.contains(**part));
        let no_facet = |facet: &&&str| !self.facets.contains_key(**facet);
        let refusals = REFUSALS.iter().filter(no_refusal);
        refusals.chain(FACETS.iter().filter(no_facet)).copied().collect()
    }
}

impl Display for Coverage {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        writeln!(out, "operations, and how many of them were refused:")?;
        for (kind, (all, refused)) in &self.kinds {
            writeln!(out, "{all:>8} {refused:>7}  {kind}")?;
        }
        writeln!(out, "refusals of both sides:")?;
        for (refusal, count) in &self.refusals {
            writeln!(out, "{count:>8}  {refusal}")?;
        }
        writeln!(out, "facets of answers:")?;
        for (facet, count) in &self.facets {
            writeln!(out, "{count:>8}  {facet}")?;
        }
        Ok(())
    }
}
