//! Schedule of faults: a pure function of the seed, which decides the faults, their times and their lengths.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use self::Aim::{Cluster, Member, Worker};

/// Numbers of workers, and of members of etcd.
pub(crate) const CREW: usize = 4;
pub(crate) const MEMBERS: usize = 3;

/// Kind of fault. Histories name it as the command line does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aim {
    Worker,
    Member,
    Cluster,
}

/// Reach of a kind of fault: what it can do to calls.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reach {
    /// Nothing: a killed process reports nothing more, and a new one has its own connections.
    Nothing,
    /// A round trip may take longer than the renewal of a short lease may.
    Brief,
    /// An operator takes the key of a holder, or all keys of its lease.
    Key,
    /// An operator puts a key that blocks a name.
    Name,
    /// etcd accepts no puts, but keeps what it has.
    Writes,
    /// One member or endpoint of three, or so short that a retry succeeds: no call is refused.
    One,
    /// As with `One`, and no lock is lost, however short its TTL is.
    Harmless,
    /// A worker, or etcd, is out of action.
    All,
}

/// Ranges of a fault's length, in milliseconds; one is chosen.
type Lasts = &'static [(u64, u64)];

const AT_ONCE: Lasts = &[(0, 0)];
const SHORT: Lasts = &[(500, 3_000)];
const SOME: Lasts = &[(1_000, 4_000), (4_000, 9_000)];
/// Below, about and above the stop times of leases of two and of ten seconds.
const ABOUT_STOP: Lasts = &[(100, 600), (1_300, 2_300), (3_000, 6_000), (8_500, 13_000)];
/// Longer than the longest TTL.
const LONG: Lasts = &[(11_000, 15_000)];
/// 12.5 s, because leaders that were stopped for that time have revoked live leases.
const LEADER: Lasts = &[(12_500, 12_500), (2_000, 6_000)];

/// Length above which a run has long calms before its end too.
const LONG_RUN: Duration = Duration::from_secs(240);

/// All kinds in order: the name, the target, the weight in the random choice, the length, and the reach, as in the matrix of faults
/// in the design.
const KINDS: [(Kind, &str, Aim, usize, Lasts, Reach); 33] = [
    (Kind::WorkerKilled, "worker killed", Worker, 2, SHORT, Reach::Nothing),
    (Kind::WorkerStopped, "worker stopped", Worker, 4, ABOUT_STOP, Reach::All),
    (Kind::WorkerCut, "worker cut off", Worker, 2, ABOUT_STOP, Reach::All),
    (Kind::RequestsLost, "requests lost", Worker, 1, SOME, Reach::All),
    (Kind::AnswersLost, "answers lost", Worker, 1, SOME, Reach::All),
    (Kind::WorkerFrozen, "connections frozen", Worker, 1, ABOUT_STOP, Reach::All),
    (Kind::WorkerReset, "connections reset", Worker, 1, AT_ONCE, Reach::One),
    (Kind::WorkerDelayed, "delay of 80 ms", Worker, 1, SOME, Reach::Brief),
    (Kind::WorkerTrickled, "trickle of 4 KiB/s", Worker, 1, SOME, Reach::All),
    (Kind::WorkerHalfOpen, "half-open connections", Worker, 1, SOME, Reach::All),
    (Kind::EndpointFrozen, "endpoint frozen", Member, 1, SOME, Reach::One),
    (Kind::EndpointRefused, "endpoint refused", Member, 1, SOME, Reach::Harmless),
    (Kind::AllReset, "all connections reset", Cluster, 1, AT_ONCE, Reach::One),
    (Kind::MemberKilled, "member killed", Member, 2, SOME, Reach::One),
    (Kind::MemberFrozen, "member frozen", Member, 2, SOME, Reach::One),
    (Kind::MemberIsolated, "member isolated", Member, 2, SOME, Reach::One),
    (Kind::LeaderKilled, "leader killed", Cluster, 2, SOME, Reach::One),
    (Kind::LeaderFrozen, "leader frozen", Cluster, 2, LEADER, Reach::One),
    (Kind::LeaderIsolated, "leader isolated", Cluster, 2, SOME, Reach::One),
    (Kind::QuorumKilled, "quorum killed", Cluster, 1, LONG, Reach::All),
    (Kind::QuorumFrozen, "quorum frozen", Cluster, 1, LONG, Reach::All),
    (Kind::AllRestarted, "all members restarted", Cluster, 1, AT_ONCE, Reach::All),
    (Kind::MemberReplaced, "member replaced", Member, 1, AT_ONCE, Reach::One),
    (Kind::EtcdWiped, "etcd wiped", Cluster, 1, SHORT, Reach::All),
    (Kind::EtcdRestored, "etcd restored from a snapshot", Cluster, 1, SOME, Reach::All),
    (Kind::LeaseRevoked, "lease revoked", Cluster, 2, AT_ONCE, Reach::Key),
    (Kind::KeyDeleted, "key deleted", Cluster, 2, AT_ONCE, Reach::Key),
    (Kind::KeyOverwritten, "key overwritten", Cluster, 1, SOME, Reach::Key),
    (Kind::JunkKey, "junk key", Cluster, 1, SOME, Reach::Name),
    (Kind::Compacted, "compaction storm", Cluster, 1, SOME, Reach::Harmless),
    (Kind::NoSpace, "no space", Cluster, 1, SHORT, Reach::Writes),
    (Kind::RoleTaken, "role taken away", Cluster, 1, ABOUT_STOP, Reach::All),
    (Kind::PasswordChanged, "password changed", Cluster, 1, ABOUT_STOP, Reach::All),
];

impl Kind {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        KINDS.iter().map(|(kind, ..)| *kind)
    }

    pub(crate) fn aim(self) -> Aim {
        KINDS[self as usize].2
    }

    pub(crate) fn reach(self) -> Reach {
        KINDS[self as usize].5
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(KINDS[*self as usize].1)
    }
}

impl TryFrom<String> for Kind {
    type Error = String;

    fn try_from(word: String) -> Result<Self, String> {
        let mut kinds = KINDS.iter();
        let kind = kinds.find(|(_, name, ..)| *name == word).map(|(kind, ..)| *kind);
        kind.ok_or_else(|| {
            format!("no kind of fault; there are {}", KINDS.map(|it| it.1).join(", "))
        })
    }
}

impl From<Kind> for String {
    fn from(kind: Kind) -> Self {
        kind.to_string()
    }
}

/// Fault: a kind and the number of the worker or member it targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) target: usize,
}

/// Step of a schedule: faults that begin together, their length, and the least calm after them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) faults: Vec<Fault>,
    pub(crate) lasts: Duration,
    pub(crate) pause: Duration,
}

/// Plans faults for this time; with `only`, faults of these kinds.
pub(crate) fn plan(seed: u64, time: Duration, only: &[Kind]) -> Vec<Step> {
    let mut random = Rng::with_seed(seed);
    let mut steps = Vec::new();
    let mut left = time;
    let mut bag: Vec<Kind> = Vec::new();
    loop {
        if bag.is_empty() {
            // All kinds are drawn, each as often as its weight, before the bag is filled again.
            let kinds = Kind::all().filter(|kind| only.is_empty() || only.contains(kind));
            bag =
                kinds.flat_map(|kind| std::iter::repeat_n(kind, KINDS[kind as usize].3)).collect();
            random.shuffle(&mut bag);
        }
        let Some(kind) = bag.pop() else {
            return steps;
        };
        let mut faults = vec![aimed(kind, &mut random)];
        let (_, _, aim, _, lasts, _) = KINDS[kind as usize];
        let &(least, most) = random.choice(lasts).unwrap_or(&(0, 0));
        // Sometimes a worker has a separate fault meanwhile.
        if only.is_empty() && aim != Worker && random.u8(0..4) == 0 {
            let other = [Kind::WorkerStopped, Kind::WorkerKilled, Kind::WorkerCut];
            let other = other[random.usize(0..other.len())];
            faults.push(aimed(other, &mut random));
        }
        // From time to time a calm in which the order of calls can be judged, and every name must be served.
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

fn aimed(kind: Kind, random: &mut Rng) -> Fault {
    let target = match kind.aim() {
        Worker => random.usize(0..CREW),
        Member | Cluster => random.usize(0..MEMBERS),
    };
    Fault { kind, target }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Fault { kind, target }) in self.faults.iter().enumerate() {
            let between = if at == 0 { "" } else { " and " };
            write!(f, "{between}{kind}")?;
            match kind.aim() {
                Worker => write!(f, " (worker {target})")?,
                Member => write!(f, " (member {target})")?,
                Cluster => {}
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
        let plan = |seed| plan(seed, HOUR, &[]);
        assert_eq!(plan(7), plan(7));
        assert_ne!(plan(7), plan(8));
    }

    #[test]
    fn half_an_hour_has_faults_of_every_kind_and_a_long_calm() {
        for seed in 0..100 {
            // Recoveries take a part of the time.
            let steps = plan(seed, HOUR / 3, &[]);
            for kind in Kind::all() {
                let mut faults = steps.iter().flat_map(|step| &step.faults);
                assert!(faults.any(|fault| fault.kind == kind), "seed {seed}: {kind}");
            }
            assert!(steps.iter().any(|step| step.pause > Duration::from_secs(20)));
            let time: Duration = steps.iter().map(|step| step.lasts + step.pause).sum();
            assert!(time <= HOUR / 3);
        }
    }

    #[test]
    fn a_kind_has_its_own_row_and_one_word_everywhere() {
        for (at, (kind, word, ..)) in KINDS.into_iter().enumerate() {
            assert_eq!((kind as usize, Kind::try_from(word.to_owned())), (at, Ok(kind)));
        }
        let line = serde_json::to_string(&Kind::WorkerTrickled).expect("a line");
        assert_eq!(line, "\"trickle of 4 KiB/s\"");
        assert!(serde_json::from_str::<Kind>("\"rain\"").is_err());
    }
}
