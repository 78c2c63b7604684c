//! Mistakes that the simulator must find: cores make one at a time, and the schedules break a promise by it.

use etcd_locked_core::{Mistake, make};

use crate::series::{Series, play_all};
use crate::world::violation::Promise::{
    self, I1, I3, I4, I5, I6, I11, Order, Progress, Retention, Truth,
};
use crate::world::violation::Violation;

/// A mistake is to be found by then.
pub(crate) const SEEDS: u64 = 5000;
/// As many find nothing if there is none.
pub(crate) const SOUND: u64 = 500;

/// What is known of a mistake.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) mistake: Mistake,
    /// The rule it breaks.
    pub(crate) rule: &'static str,
    /// What it may break first: found for another reason it is not found. Empty where schedules hardly show it, and a scenario
    /// finds it.
    pub(crate) breaks: &'static [Promise],
}

const fn known(mistake: Mistake, rule: &'static str, breaks: &'static [Promise]) -> Known {
    Known { mistake, rule, breaks }
}

/// All mistakes, in the order of the report.
pub(crate) const ALL: [Known; 23] = [
    known(Mistake::DeadlineFromReceiveTime, "P28", &[I1, Retention]),
    known(Mistake::NoAllowanceForDrift, "P28", &[I1]),
    known(Mistake::TwoAcquisitionsInABundle, "P5", &[I6, I1]),
    known(Mistake::DeleteOfAnEarlierIncarnation, "P14", &[Truth]),
    known(Mistake::PredecessorGoneIsOwnership, "P14", &[Order, I1]),
    known(Mistake::ReadersJoinForEver, "P37", &[Order]),
    known(Mistake::KeyGoesWithTheFirstReader, "P37", &[I11, I1]),
    known(Mistake::YoungerKeysCount, "P37", &[Progress, Truth]),
    known(Mistake::RevokeUnderABody, "P26", &[I11, Progress]),
    known(Mistake::PutDuringDelete, "P4", &[I6, I1, I3, I11]),
    known(Mistake::PutAgainWithoutBarrier, "P8", &[I6, I4, Order, Progress]),
    known(Mistake::NoFence, "P10", &[I4, I6]),
    known(Mistake::HandOverToPartOfAGroup, "P23", &[Truth, I3, Progress]),
    known(Mistake::RenewalProvesLostHistory, "P35", &[Truth]),
    known(Mistake::DeleteByNameOnly, "P24", &[I5, I11]),
    known(Mistake::DescribedUnguarded, "P18", &[I4, I6, I1, Progress, Retention]),
    known(Mistake::GroupsNeverStepBack, "P38", &[Truth, Progress]),
    known(Mistake::RetainedKeyDeleted, "P39", &[Retention]),
    known(Mistake::ShutdownBeforeRetention, "P39", &[Retention]),
    known(Mistake::CycleUnconfirmed, "P38", &[Truth]),
    known(Mistake::RefusedIsNotApplied, "P34", &[I4, I6, Order, Progress]),
    // the ghost lasts as long as other bodies of its session: `refused_barrier_is_sent_again` holds one
    known(Mistake::BarrierNotRepeated, "P34", &[]),
    // the operator deletes what a restore has brought back: `watches_work_again_after_a_restore`
    known(Mistake::OnlyAWipeIsLostHistory, "P35", &[]),
];

/// The first seed that breaks a promise by a mistake, and how.
pub(crate) type Found = Option<(u64, Violation)>;

/// What was found of all mistakes.
#[derive(Debug)]
pub(crate) struct Sought {
    pub(crate) mistakes: Vec<(Known, Found)>,
    /// Violations of cores that make no mistake.
    pub(crate) sound: usize,
}

impl Sought {
    /// True where each mistake that schedules must find was found, and nothing else. Tests look for those of scenarios.
    pub(crate) fn holds(&self) -> bool {
        let is_found = |(known, found): &(Known, Found)| match found {
            _ if known.breaks.is_empty() => true,
            Some((_, violation)) => known.breaks.contains(&violation.promise),
            None => false,
        };
        self.sound == 0 && self.mistakes.iter().all(is_found)
    }
}

/// Plays until a mistake breaks something, in the order of seeds.
fn seek(mistake: Mistake) -> Found {
    let series = play_all(0, SEEDS, true, true, || make(Some(mistake)));
    series.violations.into_iter().next()
}

/// Plays cores that make no mistake.
fn sound() -> Series {
    play_all(0, SOUND, true, true, || make(None))
}

pub(crate) fn seek_all() -> Sought {
    let mistakes = ALL.into_iter().map(|known| {
        let found = if known.breaks.is_empty() { None } else { seek(known.mistake) };
        (known, found)
    });
    Sought { mistakes: mistakes.collect(), sound: sound().violations.len() }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;
    use crate::scenarios::faults::{refused_barrier, watches_after_a_restore};
    use crate::search::{SEARCHES, Search};

    #[test]
    fn schedules_find_every_mistake_and_nothing_else() {
        let sought = seek_all();
        for (known, found) in &sought.mistakes {
            println!("{:?}: {found:?}", known.mistake);
        }
        assert!(sought.holds(), "{sought:#?}");
    }

    #[test]
    fn scenarios_find_the_other_mistakes() {
        let scenarios: [(Mistake, fn()); 2] = [
            (Mistake::BarrierNotRepeated, refused_barrier),
            (Mistake::OnlyAWipeIsLostHistory, watches_after_a_restore),
        ];
        for Known { mistake, .. } in ALL.into_iter().filter(|it| it.breaks.is_empty()) {
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
}
