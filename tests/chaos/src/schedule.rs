//! Schedule of faults: which come when and for how long, decided by the seed. Pure.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::options::word;

/// A kind of fault. Histories name it as the command line does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum Kind {
    #[value(name = "worker killed")]
    WorkerKilled,
    #[value(name = "worker stopped")]
    WorkerStopped,
    #[value(name = "worker cut off")]
    WorkerCut,
    #[value(name = "requests lost")]
    RequestsLost,
    #[value(name = "answers lost")]
    AnswersLost,
    #[value(name = "connections frozen")]
    WorkerFrozen,
    #[value(name = "connections reset")]
    WorkerReset,
    #[value(name = "delay of 80 ms")]
    WorkerDelayed,
    #[value(name = "trickle of 4 KiB/s")]
    WorkerTrickled,
    #[value(name = "half-open connections")]
    WorkerHalfOpen,
    #[value(name = "endpoint frozen")]
    EndpointFrozen,
    #[value(name = "endpoint refused")]
    EndpointRefused,
    #[value(name = "all connections reset")]
    AllReset,
    #[value(name = "member killed")]
    MemberKilled,
    #[value(name = "member frozen")]
    MemberFrozen,
    #[value(name = "member isolated")]
    MemberIsolated,
    #[value(name = "leader killed")]
    LeaderKilled,
    #[value(name = "leader frozen")]
    LeaderFrozen,
    #[value(name = "leader isolated")]
    LeaderIsolated,
    #[value(name = "quorum killed")]
    QuorumKilled,
    #[value(name = "quorum frozen")]
    QuorumFrozen,
    #[value(name = "all members restarted")]
    AllRestarted,
    #[value(name = "member replaced")]
    MemberReplaced,
    #[value(name = "etcd wiped")]
    EtcdWiped,
    #[value(name = "etcd restored from a snapshot")]
    EtcdRestored,
    #[value(name = "lease revoked")]
    LeaseRevoked,
    #[value(name = "key deleted")]
    KeyDeleted,
    #[value(name = "key overwritten")]
    KeyOverwritten,
    #[value(name = "junk key")]
    JunkKey,
    #[value(name = "compaction storm")]
    Compacted,
    #[value(name = "no space")]
    NoSpace,
    #[value(name = "role taken away")]
    RoleTaken,
    #[value(name = "password changed")]
    PasswordChanged,
}

/// What a fault is aimed at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aim {
    Worker,
    Member,
    Cluster,
}

/// How long a fault lasts, in milliseconds: one of these ranges.
type Lasts = &'static [(u64, u64)];

const AT_ONCE: Lasts = &[(0, 0)];
const SHORT: Lasts = &[(500, 3_000)];
const SOME: Lasts = &[(1_000, 4_000), (4_000, 9_000)];
/// Below, about and above the stop times of leases of two and of ten seconds.
const ABOUT_STOP: Lasts = &[(100, 600), (1_300, 2_300), (3_000, 6_000), (8_500, 13_000)];
/// Longer than the longest TTL.
const LONG: Lasts = &[(11_000, 15_000)];
/// Leaders that were stopped for 12.5 s have revoked leases that lived.
const LEADER: Lasts = &[(12_500, 12_500), (2_000, 6_000)];

/// Shorter runs have their long calm at the end only.
const LONG_RUN: Duration = Duration::from_secs(240);

impl Kind {
    /// Its aim, its weight in the random choice, and how long it lasts.
    fn row(self) -> (Aim, usize, Lasts) {
        match self {
            Self::WorkerKilled => (Aim::Worker, 2, SHORT),
            Self::WorkerStopped => (Aim::Worker, 4, ABOUT_STOP),
            Self::WorkerCut => (Aim::Worker, 2, ABOUT_STOP),
            Self::RequestsLost => (Aim::Worker, 1, SOME),
            Self::AnswersLost => (Aim::Worker, 1, SOME),
            Self::WorkerFrozen => (Aim::Worker, 1, ABOUT_STOP),
            Self::WorkerReset => (Aim::Worker, 1, AT_ONCE),
            Self::WorkerDelayed => (Aim::Worker, 1, SOME),
            Self::WorkerTrickled => (Aim::Worker, 1, SOME),
            Self::WorkerHalfOpen => (Aim::Worker, 1, SOME),
            Self::EndpointFrozen => (Aim::Member, 1, SOME),
            Self::EndpointRefused => (Aim::Member, 1, SOME),
            Self::AllReset => (Aim::Cluster, 1, AT_ONCE),
            Self::MemberKilled => (Aim::Member, 2, SOME),
            Self::MemberFrozen => (Aim::Member, 2, SOME),
            Self::MemberIsolated => (Aim::Member, 2, SOME),
            Self::LeaderKilled => (Aim::Cluster, 2, SOME),
            Self::LeaderFrozen => (Aim::Cluster, 2, LEADER),
            Self::LeaderIsolated => (Aim::Cluster, 2, SOME),
            Self::QuorumKilled => (Aim::Cluster, 1, LONG),
            Self::QuorumFrozen => (Aim::Cluster, 1, LONG),
            Self::AllRestarted => (Aim::Cluster, 1, AT_ONCE),
            Self::MemberReplaced => (Aim::Member, 1, AT_ONCE),
            Self::EtcdWiped => (Aim::Cluster, 1, SHORT),
            Self::EtcdRestored => (Aim::Cluster, 1, SOME),
            Self::LeaseRevoked => (Aim::Cluster, 2, AT_ONCE),
            Self::KeyDeleted => (Aim::Cluster, 2, AT_ONCE),
            Self::KeyOverwritten => (Aim::Cluster, 1, SOME),
            Self::JunkKey => (Aim::Cluster, 1, SOME),
            Self::Compacted => (Aim::Cluster, 1, SOME),
            Self::NoSpace => (Aim::Cluster, 1, SHORT),
            Self::RoleTaken => (Aim::Cluster, 1, ABOUT_STOP),
            Self::PasswordChanged => (Aim::Cluster, 1, ABOUT_STOP),
        }
    }

    /// Tells whether it is aimed at one worker.
    pub(crate) fn is_of_worker(self) -> bool {
        self.row().0 == Aim::Worker
    }
}

impl TryFrom<String> for Kind {
    type Error = String;

    fn try_from(word: String) -> Result<Self, String> {
        Self::from_str(&word, false)
    }
}

impl From<Kind> for String {
    fn from(kind: Kind) -> Self {
        word(kind)
    }
}

/// One fault: a kind and the number of the worker or member it is aimed at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) target: usize,
}

/// What happens at once, how long it lasts, and how long it is calm afterwards at least.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) faults: Vec<Fault>,
    pub(crate) lasts: Duration,
    pub(crate) pause: Duration,
}

/// Plans faults for so long. With `only`, faults of these kinds.
pub(crate) fn plan(
    seed: u64,
    time: Duration,
    crew: usize,
    members: usize,
    only: &[Kind],
) -> Vec<Step> {
    let mut random = Rng::with_seed(seed);
    let mut steps = Vec::new();
    let mut left = time;
    let mut bag: Vec<Kind> = Vec::new();
    loop {
        if bag.is_empty() {
            // All kinds are drawn, each as often as its weight says, before the bag is filled again.
            let all = Kind::value_variants().iter().copied();
            let kinds = all.filter(|kind| only.is_empty() || only.contains(kind));
            bag = kinds.flat_map(|kind| std::iter::repeat_n(kind, kind.row().1)).collect();
            random.shuffle(&mut bag);
        }
        let Some(kind) = bag.pop() else {
            return steps;
        };
        let mut faults = vec![aimed(kind, &mut random, crew, members)];
        let (aim, _, lasts) = kind.row();
        let &(least, most) = random.choice(lasts).unwrap_or(&(0, 0));
        // Sometimes a worker has a fault of its own meanwhile.
        if only.is_empty() && aim != Aim::Worker && random.u8(0..4) == 0 {
            let other = [Kind::WorkerStopped, Kind::WorkerKilled, Kind::WorkerCut];
            let other = other[random.usize(0..other.len())];
            faults.push(aimed(other, &mut random, crew, members));
        }
        // Now and then a calm in which the order of calls can be judged, and every name must be served.
        let pause = match random.u8(0..10) {
            0 if time > LONG_RUN => 28_000..=32_000,
            _ => 1_000..=4_000,
        };
        let step = Step {
            faults,
            lasts: Duration::from_millis(random.u64(least..=most)),
            pause: Duration::from_millis(random.u64(pause)),
        };
        let Some(rest) = left.checked_sub(step.lasts + step.pause) else {
            return steps;
        };
        left = rest;
        steps.push(step);
    }
}

fn aimed(kind: Kind, random: &mut Rng, crew: usize, members: usize) -> Fault {
    let target = match kind.row().0 {
        Aim::Worker => random.usize(0..crew),
        Aim::Member | Aim::Cluster => random.usize(0..members),
    };
    Fault { kind, target }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Fault { kind, target }) in self.faults.iter().enumerate() {
            let between = if at == 0 { "" } else { " and " };
            write!(f, "{between}{}", word(*kind))?;
            match kind.row().0 {
                Aim::Worker => write!(f, " (worker {target})")?,
                Aim::Member => write!(f, " (member {target})")?,
                Aim::Cluster => {}
            }
        }
        if !self.lasts.is_zero() {
            write!(f, ", {:.1} s", self.lasts.as_secs_f64())?;
        }
        write!(f, "; then {:.1} s of calm", self.pause.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    #[test]
    fn a_seed_repeats_its_schedule() {
        let plan = |seed| plan(seed, HOUR, 4, 3, &[]);
        assert_eq!(plan(7), plan(7));
        assert_ne!(plan(7), plan(8));
    }

    #[test]
    fn a_long_run_has_faults_of_every_kind() {
        let steps = plan(1, HOUR, 4, 3, &[]);
        for kind in Kind::value_variants() {
            let has = |step: &Step| step.faults.iter().any(|fault| fault.kind == *kind);
            assert!(steps.iter().any(has), "{kind:?}");
        }
        assert!(steps.iter().any(|step| step.pause > Duration::from_secs(20)));
        let time: Duration = steps.iter().map(|step| step.lasts + step.pause).sum();
        assert!(time <= HOUR);
    }

    #[test]
    fn half_an_hour_has_faults_of_every_kind() {
        for seed in 0..100 {
            // Recoveries take a part of the time.
            let steps = plan(seed, HOUR / 3, 4, 3, &[]);
            let mut faults: Vec<Kind> =
                steps.iter().flat_map(|step| step.faults.iter().map(|fault| fault.kind)).collect();
            faults.sort_unstable();
            faults.dedup();
            let kinds = Kind::value_variants().len();
            assert_eq!(faults.len(), kinds, "seed {seed}: {}", steps.len());
        }
    }

    #[test]
    fn a_kind_has_one_word_everywhere() {
        let line = serde_json::to_string(&Kind::WorkerTrickled).expect("a line");
        assert_eq!(line, "\"trickle of 4 KiB/s\"");
        for kind in Kind::value_variants() {
            assert_eq!(Kind::try_from(word(*kind)), Ok(*kind));
        }
        assert!(serde_json::from_str::<Kind>("\"rain\"").is_err());
    }

    #[test]
    fn a_schedule_of_one_kind_has_no_other() {
        let steps = plan(1, HOUR, 4, 3, &[Kind::WorkerStopped]);
        let mut kinds = steps.iter().flat_map(|step| &step.faults);
        assert!(kinds.all(|fault| fault.kind == Kind::WorkerStopped));
        assert!(steps.len() > 100);
    }
}
