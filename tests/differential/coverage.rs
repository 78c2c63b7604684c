//! Coverage of a run, so that a run cannot pass because too little happened in it.

use std::collections::BTreeMap;

use crate::side::Answer;

/// Number of responses of each kind: facets, and refusals by code and message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coverage(pub(crate) BTreeMap<String, u64>);

/// Facets that both sides must have shown, and parts of the refusals that they must have given. The comparison of the sides checks
/// the whole messages.
const WANTED: &[&str] = &[
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
    "range: found in the past",
    "range: cut by the limit",
    "range: several sorted",
    "range: cut by bounds of revision",
    "put: with the previous value",
    "put: value ignored",
    "put: lease ignored",
    "delete: several",
    "txn: compared, and true",
    "txn: compared, and false",
    "txn: answers of one within",
    "txn: as many as may be",
    "compact: done",
    "grant: id chosen by etcd",
    "grant: more than was asked for",
    "revoke: keys went with it",
    "time-to-live: with keys",
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
    pub(crate) fn count(&mut self, answer: &Answer) {
        for what in answer.refusal.as_deref().into_iter().chain(answer.facets.iter().copied()) {
            *self.0.entry(what.to_owned()).or_default() += 1;
        }
    }

    /// Counts the facets of the events that the watches of a case received.
    pub(crate) fn watched(&mut self, received: &str) {
        let several = |stream| received.matches(stream).count() > 1;
        for (facet, seen) in [
            ("watch: event of a put", received.contains("\n  put ")),
            ("watch: event of a delete", received.contains("\n  delete ")),
            ("watch: with the previous value", received.contains(", before: ")),
            ("watch: ended by compaction", received.contains("ended compacted")),
            (
                "watch: several on a stream",
                several("stream 0 received") || several("stream 1 received"),
            ),
        ] {
            if seen {
                *self.0.entry(facet.to_owned()).or_default() += 1;
            }
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        for (what, count) in other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }

    /// Lists what did not occur although it must.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        let missing = |part: &&&str| !self.0.keys().any(|it| it.contains(**part));
        WANTED.iter().filter(missing).copied().collect()
    }
}
