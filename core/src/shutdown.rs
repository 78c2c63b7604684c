//! Shutdown: refuses new locks, waits for bodies during the grace period, then deletes keys and revokes leases (rule P26).

use std::time::Duration;

use crate::moment::Moment;

/// How long the last deletes and revocations may take. After that the leases expire by themselves.
const FAREWELL: Duration = Duration::from_secs(2);

#[derive(Debug, Default, PartialEq, Eq)]
pub enum Shutdown {
    /// No shutdown was requested.
    #[default]
    Not,
    /// Bodies may run until this moment.
    Grace(Moment),
    /// No body is left, or the grace period is over and bodies must stop. Sessions without a body are revoked; etcd has until this moment.
    Farewell(Moment),
    Finished,
}

impl Shutdown {
    /// Begins a shutdown. If there are several, the shortest grace period counts.
    pub fn begin(&mut self, until: Moment) {
        match self {
            Self::Not => *self = Self::Grace(until),
            Self::Grace(earlier) => *earlier = until.min(*earlier),
            Self::Farewell(_) | Self::Finished => {}
        }
    }

    /// Returns when the present stage ends.
    pub fn due(&self) -> Option<Moment> {
        match self {
            Self::Grace(until) | Self::Farewell(until) => Some(*until),
            Self::Not | Self::Finished => None,
        }
    }

    /// Ends the grace period if it is over. Returns true if it did: then bodies must stop.
    pub fn stop(&mut self, now: Moment) -> bool {
        let stops = matches!(self, Self::Grace(until) if *until <= now);
        if stops {
            self.bid_farewell(now);
        }
        stops
    }

    /// Begins the farewell, unless it has begun. Returns when it ends.
    pub fn bid_farewell(&mut self, now: Moment) -> Moment {
        if let Self::Farewell(until) = self {
            return *until;
        }
        *self = Self::Farewell(now + FAREWELL);
        now + FAREWELL
    }

    /// Returns true if a new call is refused. Nested calls are accepted until bodies must stop.
    pub fn refuses(&self, nested: bool) -> bool {
        *self != Self::Not && !(nested && matches!(self, Self::Grace(_)))
    }

    /// Returns true once bodies have stopped or must stop. Sessions are then no longer renewed.
    pub fn has_stopped(&self) -> bool {
        matches!(self, Self::Farewell(_) | Self::Finished)
    }
}
