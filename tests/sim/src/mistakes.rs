//! Mistakes that the simulator must find: cores make one at a time, and the schedules break a promise by it.

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_locked_core::{Mistake, make};

use crate::search::{SEARCHES, Search};
use crate::series::{Series, play_all};
use crate::world::violation::Promise::{
    self, I1, I3, I4, I5, I6, I11, Order, Progress, Retention, Truth,
};
use crate::world::violation::Violation;

/// A mistake is to be found by then.
pub(crate) const SEEDS: u64 = 5000;
/// As many find nothing if there is none.
pub(crate) const SOUND: u64 = 500;
/// As many more are played of each mistake, to see what else it breaks.
pub(crate) const MORE: u64 = 300;
/// The search goes so many choices less deep for a mistake than for none.
const LESS: usize = 1;

/// All mistakes, in the order of the report.
pub(crate) const ALL: [Mistake; 23] = [
    Mistake::DeadlineFromReceiveTime,
    Mistake::NoAllowanceForDrift,
    Mistake::TwoAcquisitionsInABundle,
    Mistake::DeleteOfAnEarlierIncarnation,
    Mistake::PredecessorGoneIsOwnership,
    Mistake::ReadersJoinForEver,
    Mistake::KeyGoesWithTheFirstReader,
    Mistake::YoungerKeysCount,
    Mistake::RevokeUnderABody,
    Mistake::PutDuringDelete,
    Mistake::PutAgainWithoutBarrier,
    Mistake::NoFence,
    Mistake::HandOverToPartOfAGroup,
    Mistake::RenewalProvesLostHistory,
    Mistake::DeleteByNameOnly,
    Mistake::DescribedUnguarded,
    Mistake::GroupsNeverStepBack,
    Mistake::RetainedKeyDeleted,
    Mistake::ShutdownBeforeRetention,
    Mistake::CycleUnconfirmed,
    Mistake::RefusedIsNotApplied,
    Mistake::BarrierNotRepeated,
    Mistake::OnlyAWipeIsLostHistory,
];

/// What is known of a mistake.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) words: &'static str,
    /// The rule it breaks.
    pub(crate) rule: &'static str,
    /// What it may break first: found for another reason it is not found. Empty where schedules hardly show it, and a scenario
    /// finds it.
    pub(crate) breaks: &'static [Promise],
}

/// What is known of a mistake.
pub(crate) const fn known(mistake: Mistake) -> Known {
    let (rule, words, breaks): (_, _, &[Promise]) = match mistake {
        Mistake::DeadlineFromReceiveTime => ("P28", "deadline from receive time", &[I1, Retention]),
        Mistake::NoAllowanceForDrift => ("P28", "no allowance for drift", &[I1]),
        Mistake::TwoAcquisitionsInABundle => {
            ("P5", "two acquisitions of one name in a transaction", &[I6, I1])
        }
        Mistake::DeleteOfAnEarlierIncarnation => {
            ("P14", "a DELETE taken for a newer incarnation", &[Truth])
        }
        Mistake::PredecessorGoneIsOwnership => {
            ("P14", "predecessor's deletion taken for ownership", &[Order, I1])
        }
        Mistake::ReadersJoinForEver => {
            ("P37", "readers join a key as long as it is held", &[Order])
        }
        Mistake::KeyGoesWithTheFirstReader => {
            ("P37", "a key goes with the first of its readers", &[I11, I1])
        }
        Mistake::YoungerKeysCount => {
            ("P37", "younger keys count where only older ones may", &[Progress, Truth])
        }
        Mistake::RevokeUnderABody => {
            ("P26", "a lost session is revoked under a body", &[I11, Progress])
        }
        Mistake::PutDuringDelete => {
            ("P4", "a key is put again while its delete is unresolved", &[I6, I1, I3, I11])
        }
        Mistake::PutAgainWithoutBarrier => {
            ("P8", "an unanswered put is sent again without a barrier", &[I6, I4, Order, Progress])
        }
        Mistake::NoFence => ("P10", "puts do not compare the session key", &[I4, I6]),
        Mistake::HandOverToPartOfAGroup => {
            ("P23", "hand-over to part of a group", &[Truth, I3, Progress])
        }
        Mistake::RenewalProvesLostHistory => {
            ("P35", "a renewal's lower revision taken for lost history", &[Truth])
        }
        Mistake::DeleteByNameOnly => ("P24", "a release deletes by name only", &[I5, I11]),
        Mistake::DescribedUnguarded => (
            "P18",
            "the record of a held key is written unguarded",
            &[I4, I6, I1, Progress, Retention],
        ),
        Mistake::GroupsNeverStepBack => ("P38", "groups never step back", &[Truth, Progress]),
        Mistake::RetainedKeyDeleted => {
            ("P39", "a retained key is deleted at release", &[Retention])
        }
        Mistake::ShutdownBeforeRetention => {
            ("P39", "shutdown before a retained key has a lease of its own", &[Retention])
        }
        Mistake::CycleUnconfirmed => ("P38", "a cycle cut as it was read, unconfirmed", &[Truth]),
        Mistake::RefusedIsNotApplied => {
            ("P34", "a refused put taken for one that was not applied", &[I4, I6, Order, Progress])
        }
        Mistake::BarrierNotRepeated => (
            "P34",
            "a refused barrier is never sent again",
            &[], // the ghost lasts as long as other bodies of its session: `refused_barrier_is_sent_again` holds one
        ),
        Mistake::OnlyAWipeIsLostHistory => (
            "P35",
            "only a wipe is taken for lost history",
            &[], // the operator deletes what a restore has brought back: `watches_work_again_after_a_restore`
        ),
    };
    Known { words, rule, breaks }
}

/// What was found of one mistake.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) mistake: Mistake,
    /// The first seed that breaks a promise by it, and how.
    pub(crate) first: Option<(u64, Violation)>,
    /// How long that took.
    pub(crate) took: Duration,
    /// What else it breaks in the schedules after that.
    pub(crate) others: BTreeSet<Promise>,
    /// Choices that the exhaustive search needs, of those it has; and what they break.
    pub(crate) search: Option<(usize, Promise)>,
}

/// What was found of all mistakes.
#[derive(Debug)]
pub(crate) struct Sought {
    pub(crate) mistakes: Vec<Found>,
    /// Violations of cores that make no mistake.
    pub(crate) sound: usize,
}

impl Sought {
    /// True where each mistake that schedules must find was found, and nothing else. Tests look for those of scenarios.
    pub(crate) fn holds(&self) -> bool {
        let is_found = |found: &Found| {
            let breaks = known(found.mistake).breaks;
            match &found.first {
                _ if breaks.is_empty() => true,
                Some((_, violation)) => breaks.contains(&violation.promise),
                None => false,
            }
        };
        self.sound == 0 && self.mistakes.iter().all(is_found)
    }
}

/// Plays until a mistake breaks something, in the order of seeds.
pub(crate) fn seek(mistake: Mistake) -> Series {
    play_all(0, SEEDS, true, true, || make(Some(mistake)))
}

/// Plays cores that make no mistake.
pub(crate) fn sound() -> Series {
    play_all(0, SOUND, true, true, || make(None))
}

pub(crate) fn seek_all() -> Sought {
    Sought { mistakes: ALL.into_iter().map(found).collect(), sound: sound().violations.len() }
}

fn found(mistake: Mistake) -> Found {
    let series = seek(mistake);
    let first = series.violations.into_iter().next();
    let others = first.as_ref().map_or_else(BTreeSet::new, |(seed, first)| {
        let series = play_all(seed + 1, MORE, false, true, || make(Some(mistake)));
        let broken = series.violations.into_iter().map(|(_, it)| it.promise);
        broken.filter(|other| *other != first.promise).collect()
    });
    Found { mistake, first, took: series.took, others, search: search(mistake) }
}

fn search(mistake: Mistake) -> Option<(usize, Promise)> {
    SEARCHES.iter().find_map(|(opening, depth)| {
        let search = Search::new(*opening, depth - LESS, move || make(Some(mistake)));
        let (choices, violation) = search.run().violation?;
        Some((choices.len(), violation.promise))
    })
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use etcd_locked_core::{Mistake, make};

    use super::{ALL, SEEDS, known, seek, sound};
    use crate::scenarios::barrier::refused_barrier;
    use crate::scenarios::restore::watches_after_a_restore;
    use crate::search::{SEARCHES, Search};
    use crate::world::violation::Promise;

    #[test]
    fn schedules_find_every_mistake() {
        let mut missed = Vec::new();
        for mistake in ALL {
            let breaks = known(mistake).breaks;
            if breaks.is_empty() {
                continue;
            }
            let series = seek(mistake);
            let Some((seed, violation)) = series.violations.first() else {
                missed.push(mistake);
                continue;
            };
            let expected = breaks.contains(&violation.promise);
            assert!(expected, "{mistake:?}: seed {seed}, {violation}");
            println!("{mistake:?}: seed {seed} in {:.2?}: {violation}", series.took);
        }
        assert!(missed.is_empty(), "not found in {SEEDS} seeds: {missed:?}");
    }

    #[test]
    fn scenarios_find_the_other_mistakes() {
        let scenarios: [(Mistake, fn()); 2] = [
            (Mistake::BarrierNotRepeated, refused_barrier),
            (Mistake::OnlyAWipeIsLostHistory, watches_after_a_restore),
        ];
        for mistake in ALL.into_iter().filter(|it| known(*it).breaks.is_empty()) {
            let (_, scenario) = scenarios.into_iter().find(|(of, _)| *of == mistake).expect("one");
            make(Some(mistake));
            let played = catch_unwind(scenario);
            make(None);
            assert!(played.is_err(), "{mistake:?}");
        }
    }

    /// So that the exhaustive search is seen to be able to fail.
    #[test]
    fn search_finds_a_mistake() {
        let mistake = Mistake::DeleteByNameOnly;
        let (opening, depth) = SEARCHES[4];
        let searched = Search::new(opening, depth, move || make(Some(mistake))).run();
        let (choices, violation) = searched.violation.expect("a violation");
        assert_eq!(violation.promise, Promise::I1, "{choices:?}: {violation}");
    }

    #[test]
    fn schedules_find_nothing_without_a_mistake() {
        let series = sound();
        assert!(series.violations.is_empty(), "{:?}", series.violations);
    }
}
