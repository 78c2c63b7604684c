//! Crowd of a comparison: how many processes and tasks lock how many names.

use std::time::Duration;

use super::Pace;

#[derive(Clone, Copy)]
pub(crate) struct Crowd {
    pub(crate) processes: usize,
    /// Of each process.
    pub(crate) tasks: usize,
    pub(crate) names: usize,
}

impl Crowd {
    /// How long a round counts.
    pub(crate) fn window(&self, pace: &Pace) -> Duration {
        match self.processes {
            ..64 => pace.window,
            // It takes long until every process has been served.
            _ => pace.window * 2,
        }
    }

    /// How long a round goes on before it counts: all have connected then, and the first locks and watches are there.
    pub(crate) fn lead(&self) -> Duration {
        Duration::from_millis(300 + 8 * self.processes as u64)
    }
}
