//! Side of a comparison: the processes of one library, ours or a peer's, and what they have done in all rounds.

use std::fmt::Display;
use std::time::Duration;

use super::Pace;
use super::crew::{Crew, Done, Kind, Witness};
use super::crowd::Crowd;
use super::figures::{Spread, number};
use crate::Result;
use crate::latency::Latency;

pub(crate) struct Side {
    pub(crate) kind: Kind,
    pub(crate) crew: Crew,
    witness: Option<Witness>,
    lead: Duration,
    window: Duration,
    /// Of each round.
    pub(crate) rates: Vec<f64>,
    pub(crate) latency: Latency,
    pub(crate) total: u64,
    pub(crate) changes: u64,
}

impl Side {
    /// Starts the processes, which lock by the etcd at these URLs.
    pub(crate) fn start(kind: Kind, crowd: Crowd, endpoints: &str, pace: &Pace) -> Result<Self> {
        let window = crowd.window(pace);
        // In one process a counter in memory will do.
        let witness = match crowd.processes {
            1 => None,
            _ => Some(Witness::new(crowd.names)?),
        };
        let seconds = window.as_secs_f64();
        let file = witness.as_ref().map(|witness| witness.path().display());
        let mut options: Vec<(&str, &dyn Display)> =
            vec![("tasks", &crowd.tasks), ("names", &crowd.names), ("seconds", &seconds)];
        options.extend(file.iter().map(|file| ("witness", file as &dyn Display)));
        Ok(Self {
            kind,
            crew: Crew::at_work(kind, crowd.processes, "calls", endpoints, &options)?,
            witness,
            lead: crowd.lead(),
            window,
            rates: Vec::new(),
            latency: Latency::default(),
            total: 0,
            changes: 0,
        })
    }

    pub(crate) fn round(&mut self) -> Result<()> {
        self.begin()?;
        self.finish()
    }

    /// Has all begin.
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.crew.order(self.lead)
    }

    /// Waits for the end of the round, and takes in what was done.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let done = Done::of(&self.crew.answers(self.lead + self.window)?)?;
        self.total += done.total;
        self.changes += done.changes;
        let (seen, all) = match &self.witness {
            None => (done.witnessed, done.total),
            Some(witness) => (witness.seen()?, self.total),
        };
        if seen != all {
            return Err(format!(
                "{} does not exclude: of {all} calls the witness has counted {seen}",
                self.kind.title()
            ));
        }
        self.rates.push(done.rate);
        self.latency.add(&done.latency);
        Ok(())
    }

    /// Calls a second of the last round.
    pub(crate) fn last(&self) -> f64 {
        self.rates.last().copied().unwrap_or_default()
    }

    pub(crate) fn shown(&self) -> Result<String> {
        let spread = Spread::of(self.rates.iter().copied()).ok_or("there was no round")?;
        Ok(spread.shown(number) + "/s")
    }

    pub(crate) fn end(self) -> Result<()> {
        self.crew.end()
    }
}
