//! Schedule of faults: which come when and for how long, decided by the seed. Pure.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    WorkerKilled,
    WorkerStopped,
    WorkerCut,
    RequestsLost,
    AnswersLost,
    WorkerFrozen,
    WorkerReset,
    WorkerDelayed,
    WorkerTrickled,
    WorkerHalfOpen,
    EndpointFrozen,
    EndpointRefused,
    AllReset,
    MemberKilled,
    MemberFrozen,
    MemberIsolated,
    LeaderKilled,
    LeaderFrozen,
    LeaderIsolated,
    QuorumKilled,
    QuorumFrozen,
    AllRestarted,
    MemberReplaced,
    EtcdWiped,
    EtcdRestored,
    LeaseRevoked,
    KeyDeleted,
    KeyOverwritten,
    JunkKey,
    Compacted,
    NoSpace,
    RoleTaken,
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

/// Every kind: its name, its aim, its weight in the random choice, how long it lasts.
const KINDS: &[(Kind, &str, Aim, u32, Lasts)] = &[
    (Kind::WorkerKilled, "worker killed", Aim::Worker, 2, SHORT),
    (
        Kind::WorkerStopped,
        "worker stopped",
        Aim::Worker,
        4,
        ABOUT_STOP,
    ),
    (
        Kind::WorkerCut,
        "worker cut off",
        Aim::Worker,
        2,
        ABOUT_STOP,
    ),
    (Kind::RequestsLost, "requests lost", Aim::Worker, 1, SOME),
    (Kind::AnswersLost, "answers lost", Aim::Worker, 1, SOME),
    (
        Kind::WorkerFrozen,
        "connections frozen",
        Aim::Worker,
        1,
        ABOUT_STOP,
    ),
    (
        Kind::WorkerReset,
        "connections reset",
        Aim::Worker,
        1,
        AT_ONCE,
    ),
    (Kind::WorkerDelayed, "delay of 80 ms", Aim::Worker, 1, SOME),
    (
        Kind::WorkerTrickled,
        "trickle of 4 KiB/s",
        Aim::Worker,
        1,
        SOME,
    ),
    (
        Kind::WorkerHalfOpen,
        "half-open connections",
        Aim::Worker,
        1,
        SOME,
    ),
    (
        Kind::EndpointFrozen,
        "endpoint frozen",
        Aim::Member,
        1,
        SOME,
    ),
    (
        Kind::EndpointRefused,
        "endpoint refused",
        Aim::Member,
        1,
        SOME,
    ),
    (
        Kind::AllReset,
        "all connections reset",
        Aim::Cluster,
        1,
        AT_ONCE,
    ),
    (Kind::MemberKilled, "member killed", Aim::Member, 2, SOME),
    (Kind::MemberFrozen, "member frozen", Aim::Member, 2, SOME),
    (
        Kind::MemberIsolated,
        "member isolated",
        Aim::Member,
        2,
        SOME,
    ),
    (Kind::LeaderKilled, "leader killed", Aim::Cluster, 2, SOME),
    (Kind::LeaderFrozen, "leader frozen", Aim::Cluster, 2, LEADER),
    (
        Kind::LeaderIsolated,
        "leader isolated",
        Aim::Cluster,
        2,
        SOME,
    ),
    (Kind::QuorumKilled, "quorum killed", Aim::Cluster, 1, LONG),
    (Kind::QuorumFrozen, "quorum frozen", Aim::Cluster, 1, LONG),
    (
        Kind::AllRestarted,
        "all members restarted",
        Aim::Cluster,
        1,
        AT_ONCE,
    ),
    (
        Kind::MemberReplaced,
        "member replaced",
        Aim::Member,
        1,
        AT_ONCE,
    ),
    (Kind::EtcdWiped, "etcd wiped", Aim::Cluster, 1, SHORT),
    (
        Kind::EtcdRestored,
        "etcd restored from a snapshot",
        Aim::Cluster,
        1,
        SOME,
    ),
    (
        Kind::LeaseRevoked,
        "lease revoked",
        Aim::Cluster,
        2,
        AT_ONCE,
    ),
    (Kind::KeyDeleted, "key deleted", Aim::Cluster, 2, AT_ONCE),
    (
        Kind::KeyOverwritten,
        "key overwritten",
        Aim::Cluster,
        1,
        SOME,
    ),
    (Kind::JunkKey, "junk key", Aim::Cluster, 1, SOME),
    (Kind::Compacted, "compaction storm", Aim::Cluster, 1, SOME),
    (Kind::NoSpace, "no space", Aim::Cluster, 1, SHORT),
    (
        Kind::RoleTaken,
        "role taken away",
        Aim::Cluster,
        1,
        ABOUT_STOP,
    ),
    (
        Kind::PasswordChanged,
        "password changed",
        Aim::Cluster,
        1,
        ABOUT_STOP,
    ),
];

/// Shorter runs have their long calm at the end only.
const LONG_RUN: Duration = Duration::from_secs(240);

impl Kind {
    /// The name of the kind, in histories and reports.
    pub(crate) fn word(self) -> &'static str {
        KINDS
            .iter()
            .find(|row| row.0 == self)
            .map_or("", |row| row.1)
    }

    /// Tells whether it is aimed at one worker.
    pub(crate) fn is_of_worker(self) -> bool {
        KINDS
            .iter()
            .any(|row| row.0 == self && row.2 == Aim::Worker)
    }

    /// The names of all kinds.
    pub(crate) fn words() -> impl Iterator<Item = &'static str> {
        KINDS.iter().map(|row| row.1)
    }

    /// The kind of this name.
    pub(crate) fn named(word: &str) -> Option<Self> {
        KINDS.iter().find(|row| row.1 == word).map(|row| row.0)
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
            let kinds = KINDS
                .iter()
                .filter(|row| only.is_empty() || only.contains(&row.0));
            bag = kinds
                .flat_map(|row| std::iter::repeat_n(row.0, row.3 as usize))
                .collect();
            random.shuffle(&mut bag);
        }
        let Some(kind) = bag.pop() else {
            return steps;
        };
        let mut faults = vec![aimed(kind, &mut random, crew, members)];
        let Some(row) = KINDS.iter().find(|row| row.0 == kind) else {
            return steps;
        };
        let &(least, most) = random.choice(row.4).unwrap_or(&(0, 0));
        // Sometimes a worker has a fault of its own meanwhile.
        if only.is_empty() && row.2 != Aim::Worker && random.u8(0..4) == 0 {
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
    let aim = KINDS.iter().find(|row| row.0 == kind).map(|row| row.2);
    let target = match aim {
        Some(Aim::Worker) => random.usize(0..crew),
        _ => random.usize(0..members),
    };
    Fault { kind, target }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Fault { kind, target }) in self.faults.iter().enumerate() {
            let aim = KINDS.iter().find(|row| row.0 == *kind).map(|row| row.2);
            let between = if at == 0 { "" } else { " and " };
            write!(f, "{between}{}", kind.word())?;
            match aim {
                Some(Aim::Worker) => write!(f, " (worker {target})")?,
                Some(Aim::Member) => write!(f, " (member {target})")?,
                _ => {}
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
        for (kind, word, ..) in KINDS {
            let has = |step: &Step| step.faults.iter().any(|fault| fault.kind == *kind);
            assert!(steps.iter().any(has), "{word}");
            assert_eq!(Kind::named(word), Some(*kind));
        }
        assert!(
            steps
                .iter()
                .any(|step| step.pause > Duration::from_secs(20))
        );
        let time: Duration = steps.iter().map(|step| step.lasts + step.pause).sum();
        assert!(time <= HOUR);
    }

    #[test]
    fn half_an_hour_has_faults_of_every_kind() {
        for seed in 0..100 {
            // Recoveries take a part of the time.
            let steps = plan(seed, HOUR / 3, 4, 3, &[]);
            let mut faults: Vec<Kind> = steps
                .iter()
                .flat_map(|step| step.faults.iter().map(|fault| fault.kind))
                .collect();
            faults.sort_unstable();
            faults.dedup();
            assert_eq!(faults.len(), KINDS.len(), "seed {seed}: {}", steps.len());
        }
    }

    #[test]
    fn a_schedule_of_one_kind_has_no_other() {
        let steps = plan(1, HOUR, 4, 3, &[Kind::WorkerStopped]);
        let mut kinds = steps.iter().flat_map(|step| &step.faults);
        assert!(kinds.all(|fault| fault.kind == Kind::WorkerStopped));
        assert!(steps.len() > 100);
    }
}
