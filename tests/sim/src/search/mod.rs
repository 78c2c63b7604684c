//! Search: plays every schedule of a few clients with one name and short leases, up to a number of choices.
//!
//! A state is the list of choices that leads to it, and is rebuilt by playing them again. A digest identifies it.

pub(crate) mod board;
#[cfg(test)]
mod deadlock;

use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::search::board::{Board, Choice, Modes, Opening};
use crate::world::violation::Violation;

/// The openings of the searches, and their depths.
pub(crate) const SEARCHES: [(Opening, usize); 9] = [
    (opening(2, 0, true), 5),
    (opening(2, 1, true), 5),
    (opening(2, 2, true), 5),
    (opening(3, 3, true), 5),
    (opening(2, 1, false), 12),
    (opening(3, 2, false), 8),
    (opening(2, 1, false).of(Modes::Shared), 9),
    (opening(3, 2, false).of(Modes::Shared), 7),
    (opening(3, 2, false).of(Modes::Permits), 7),
];

const fn opening(clients: usize, queued: usize, time: bool) -> Opening {
    Opening { clients, queued, time, modes: Modes::Exclusive }
}

impl Opening {
    const fn of(mut self, modes: Modes) -> Self {
        self.modes = modes;
        self
    }
}

/// The search of one opening.
#[derive(Clone)]
pub(crate) struct Search {
    pub(crate) opening: Opening,
    /// The number of choices after the opening.
    pub(crate) depth: usize,
}

/// The state after some choices.
#[derive(Debug, Clone)]
pub(crate) struct State {
    choices: Vec<Choice>,
    /// The choices that are possible next.
    open: Vec<Choice>,
    digest: u64,
    violation: Option<Violation>,
}

/// The only property. It covers all checks of the bench.
const HOLDS: &str = "nothing is violated";

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.digest.hash(hasher);
    }
}

/// The result of a search.
#[derive(Debug)]
pub(crate) struct Searched {
    /// The number of different states, and of the paths to them.
    pub(crate) states: usize,
    pub(crate) ways: usize,
    /// A shortest path to a violation.
    pub(crate) violation: Option<(Vec<Choice>, Violation)>,
    pub(crate) took: Duration,
}

impl Search {
    /// Visits every state, or stops at a violation.
    pub(crate) fn run(self) -> Searched {
        let began = Instant::now();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let checker = self.checker().threads(threads).finish_when(HasDiscoveries::Any);
        let checker = checker.spawn_bfs().join();
        let found = checker.discovery(HOLDS);
        let violation = found.and_then(|path| {
            let state = path.into_states().pop()?;
            Some((state.choices, state.violation?))
        });
        Searched {
            states: checker.unique_state_count(),
            ways: checker.state_count(),
            violation,
            took: began.elapsed(),
        }
    }

    fn state(&self, choices: Vec<Choice>) -> State {
        let mut board = Board::new(self.opening);
        let played = catch_unwind(AssertUnwindSafe(|| {
            board.open_with(self.opening);
            for choice in &choices {
                board.take(*choice);
            }
        }));
        let violation = played.err().map(Violation::caught);
        let open = match violation {
            None if choices.len() < self.depth => board.choices(),
            _ => Vec::new(),
        };
        State { digest: board.digest(), choices, open, violation }
    }
}

impl Model for Search {
    type State = State;
    type Action = Choice;

    fn init_states(&self) -> Vec<State> {
        vec![self.state(Vec::new())]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Choice>) {
        actions.extend(&state.open);
    }

    fn next_state(&self, state: &State, choice: Choice) -> Option<State> {
        let mut choices = state.choices.clone();
        choices.push(choice);
        Some(self.state(choices))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(HOLDS, |_, state: &State| state.violation.is_none())]
    }
}

#[cfg(test)]
mod tests {
    use super::{SEARCHES, Search};

    #[test]
    fn nothing_is_violated_within_a_few_choices() {
        for (opening, depth) in SEARCHES {
            let searched = Search { opening, depth: depth - 3 }.run();
            assert!(searched.violation.is_none(), "{opening:?}: {searched:?}");
            assert!(searched.states > 20, "{opening:?}: {searched:?}");
        }
    }
}
