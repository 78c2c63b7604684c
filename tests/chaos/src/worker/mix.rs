//! Mix of a run: the kinds of calls that a worker makes besides hot ones and turns, and their frequency.

use clap::ValueEnum;
use clap::builder::PossibleValue;
use fastrand::Rng;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Call of a task that always wants one hot name.
    Hot,
    /// Call of a task that always wants one name, which no other task of its process wants.
    Turn,
    Exclusive,
    Cold,
    Shared,
    Writer,
    Permit,
    Group,
    Try,
    Bounded,
    Dropped,
    Detached,
    Nested,
    Retained,
    Long,
    Panicking,
    Blocking,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Mix {
    pub(crate) name: &'static str,
    weights: &'static [(Kind, usize)],
}

const MIXES: &[Mix] = &[
    Mix {
        name: "all",
        weights: &[
            (Kind::Exclusive, 4),
            (Kind::Cold, 3),
            (Kind::Shared, 4),
            (Kind::Writer, 2),
            (Kind::Permit, 4),
            (Kind::Group, 3),
            (Kind::Try, 2),
            (Kind::Bounded, 2),
            (Kind::Dropped, 2),
            (Kind::Detached, 2),
            (Kind::Nested, 2),
            (Kind::Retained, 2),
            (Kind::Long, 1),
            (Kind::Panicking, 1),
            (Kind::Blocking, 1),
        ],
    },
    Mix { name: "exclusive", weights: &[(Kind::Exclusive, 6), (Kind::Cold, 3), (Kind::Long, 1)] },
    Mix {
        name: "together",
        weights: &[(Kind::Shared, 4), (Kind::Writer, 2), (Kind::Permit, 4), (Kind::Exclusive, 1)],
    },
    Mix { name: "groups", weights: &[(Kind::Group, 5), (Kind::Nested, 4), (Kind::Exclusive, 1)] },
    Mix {
        name: "hasty",
        weights: &[(Kind::Try, 4), (Kind::Bounded, 4), (Kind::Dropped, 4), (Kind::Detached, 2)],
    },
];

impl ValueEnum for Mix {
    fn value_variants<'a>() -> &'a [Self] {
        MIXES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name))
    }
}

impl Mix {
    pub(crate) fn choose(&self, random: &mut Rng) -> Kind {
        let weights = self.weights.iter();
        let kinds = weights.flat_map(|(kind, weight)| std::iter::repeat_n(*kind, *weight));
        random.choice(Vec::from_iter(kinds)).unwrap_or(Kind::Exclusive)
    }
}
