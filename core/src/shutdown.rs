//! Shutdown: no new locks, then the grace for bodies, then the farewell to etcd (rule P26).

use std::time::Duration;

use crate::moment::Moment;

/// How long the last deletes and revocations may take: after that the leases run out by themselves.
const FAREWELL: Duration = Duration::from_secs(2);

/// How far a shutdown has come.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum Shutdown {
    /// None was asked for.
    #[default]
    Not,
    /// Bodies may run until then.
    Grace(Moment),
    /// No body is left, or the grace is over and bodies are told to stop. Sessions without a body are revoked; etcd may take until then.
    Farewell(Moment),
    Finished,
}

impl Shutdown {
    /// A shutdown is asked for; of several graces the shortest counts.
    pub fn begin(&mut self, until: Moment) {
        match self {
            Self::Not => *self = Self::Grace(until),
            Self::Grace(earlier) => *earlier = until.min(*earlier),
            Self::Farewell(_) | Self::Finished => {}
        }
    }

    /// When its present stage is over.
    pub fn due(&self) -> Option<Moment> {
        match self {
            Self::Grace(until) | Self::Farewell(until) => Some(*until),
            Self::Not | Self::Finished => None,
        }
    }

    /// Goes on to the farewell if the grace is over. Returns true if it does: then bodies stop.
    pub fn stop(&mut self, now: Moment) -> bool {
        let stops = matches!(self, Self::Grace(until) if *until <= now);
        if stops {
            self.bid_farewell(now);
        }
        stops
    }

    /// Begins the farewell, unless it has begun. Returns until when etcd may take.
    pub fn bid_farewell(&mut self, now: Moment) -> Moment {
        if let Self::Farewell(until) = self {
            return *until;
        }
        *self = Self::Farewell(now + FAREWELL);
        now + FAREWELL
    }

    /// Whether a new call is turned away. A call of a task that holds a lock is let in until bodies must stop.
    pub fn refuses(&self, nested: bool) -> bool {
        *self != Self::Not && !(nested && matches!(self, Self::Grace(_)))
    }

    /// Whether the grace is behind us, so that sessions are left to run out.
    pub fn has_stopped(&self) -> bool {
        matches!(self, Self::Farewell(_) | Self::Finished)
    }
}
