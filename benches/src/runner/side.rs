//! Side of a comparison: the processes of one library, ours or a peer's, and what they have done in all rounds.

use std::fmt::Display;
use std::fs;
use std::time::Duration;

use serde_json::Value;
use tempfile::NamedTempFile;

use super::Pace;
use super::crew::{Crew, Options, number_of};
use crate::Result;
use crate::kind::Kind;
use crate::latency::Latency;

/// Numbers of processes, tasks and names.
#[derive(Clone, Copy)]
pub(crate) struct Crowd {
    pub(crate) processes: usize,
    /// Tasks of each process.
    pub(crate) tasks: usize,
    pub(crate) names: usize,
}

pub(crate) struct Side {
    pub(crate) kind: Kind,
    pub(crate) crew: Crew,
    /// File with two fields of eight bytes for each name: a counter, and the process that was there last.
    witness: Option<NamedTempFile>,
    /// How long a round runs before it counts: until all have connected, and the first locks and watches exist.
    pub(crate) lead: Duration,
    /// Length of the part of a round that counts.
    pub(crate) window: Duration,
    /// Calls per second in each round.
    pub(crate) rates: Vec<f64>,
    pub(crate) latency: Latency,
    /// All calls, within windows and outside.
    pub(crate) total: f64,
    /// Calls that came after one of another process.
    pub(crate) changes: f64,
    /// Calls whose lock was lost.
    pub(crate) failed: f64,
    /// Processor time per call in each round, from workers that measure it.
    pub(crate) processor: Vec<f64>,
}

impl Side {
    /// Starts the processes, which lock in the etcd at these URLs.
    pub(crate) fn start(
        kind: Kind,
        work: &str,
        crowd: Crowd,
        endpoints: &str,
        more: &Options<'_>,
        pace: &Pace,
    ) -> Result<Self> {
        // With many processes, it takes long until each of them has been served.
        let window = if crowd.processes < 64 { pace.window } else { pace.window * 2 };
        // In one process a counter in memory is enough.
        let witness = (crowd.processes > 1).then(|| witness(crowd.names)).transpose()?;
        let seconds = window.as_secs_f64();
        let mut options: Vec<(&str, &dyn Display)> =
            vec![("tasks", &crowd.tasks), ("names", &crowd.names), ("seconds", &seconds)];
        let file = witness.as_ref().map(|witness| witness.path().display());
        options.extend(file.iter().map(|file| ("witness", file as &dyn Display)));
        options.extend(more);
        Ok(Self {
            kind,
            crew: Crew::at_work(kind, crowd.processes, work, endpoints, &options)?,
            witness,
            lead: Duration::from_millis(300 + 8 * crowd.processes as u64),
            window,
            rates: Vec::new(),
            latency: Latency::default(),
            total: 0.0,
            changes: 0.0,
            failed: 0.0,
            processor: Vec::new(),
        })
    }

    pub(crate) fn round(&mut self) -> Result<()> {
        self.crew.order(self.lead)?;
        self.finish()
    }

    /// Waits for the end of the round, and adds its results.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let answers = self.crew.answers(self.lead + self.window)?;
        let sum =
            |field| answers.iter().map(|answer| number_of(answer, field)).sum::<Result<f64>>();
        for answer in &answers {
            let latency = answer.get("latency").and_then(Value::as_object);
            let latency = latency.and_then(Latency::from_json);
            self.latency.add(&latency.ok_or("a worker's answer has no latency")?);
        }
        let (count, total) = (sum("count")?, sum("total")?);
        self.total += total;
        self.changes += sum("changes")?;
        self.failed += sum("failed").unwrap_or_default();
        let (seen, all) = match &self.witness {
            None => (sum("witnessed")?, total),
            Some(witness) => (seen(witness)?, self.total),
        };
        // The witness counts a body that ends with the loss of its lock; the worker does not.
        if seen < all || (seen > all && self.failed == 0.0) {
            return Err(format!(
                "{} does not exclude: of {all} calls the witness has counted {seen}",
                self.kind.title()
            ));
        }
        self.rates.push(count / self.window.as_secs_f64());
        self.processor.extend(sum("processor").ok().map(|used| used / count));
        Ok(())
    }

    /// Returns the calls per second of the last round.
    pub(crate) fn last(&self) -> f64 {
        self.rates.last().copied().unwrap_or_default()
    }
}

fn witness(names: usize) -> Result<NamedTempFile> {
    let file = NamedTempFile::new();
    let file = file.and_then(|file| file.as_file().set_len(16 * names as u64).map(|()| file));
    file.map_err(|error| format!("no file for the witness: {error}"))
}

/// Returns the number of calls that the witness has counted.
fn seen(witness: &NamedTempFile) -> Result<f64> {
    let counters = fs::read(witness.path()).map_err(|error| format!("the witness: {error}"))?;
    let (counters, _) = counters.as_chunks();
    Ok(counters.iter().step_by(2).map(|c| u64::from_le_bytes(*c)).sum::<u64>() as f64)
}
