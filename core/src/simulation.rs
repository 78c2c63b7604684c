//! Simulation: what only tests of the core want, and costs nothing without the feature `simulation`.
//!
//! Mistakes that the simulator must find: each was made by the protocol's first draft, or is made by another library. Where the core
//! could make one, the place reads `if mistake(Mistake::…)`. And steps: how much work the core has done on this thread, counted for
//! tests that ask what an input costs (invariant I12).

/// A mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// A session's time is counted from when the answer came (rule P28).
    DeadlineFromReceiveTime,
    /// No allowance for clocks that drift (rule P28).
    NoAllowanceForDrift,
    /// Two acquisitions of one name share a transaction (rule P5).
    TwoAcquisitionsInABundle,
    /// A DELETE of an earlier incarnation is taken for the current one (rule P14).
    DeleteOfAnEarlierIncarnation,
    /// The deletion of the predecessor just ahead is taken for ownership, though others stand (rule P14).
    PredecessorGoneIsOwnership,
    /// Readers join a key for as long as it is held (rule P37).
    ReadersJoinForEver,
    /// The first reader that leaves takes the key along (rule P37).
    KeyGoesWithTheFirstReader,
    /// Younger keys count where only older ones may (rule P37).
    YoungerKeysCount,
    /// A lost or retired session is revoked while a body runs (rule P26).
    RevokeUnderABody,
    /// A key is put again while its delete is unresolved (rule P4).
    PutDuringDelete,
    /// A put without an answer is sent again without a barrier (rule P8).
    PutAgainWithoutBarrier,
    /// Puts do not compare the session key (rule P10).
    NoFence,
    /// A key is handed over although the heir wants other names too (rule P23).
    HandOverToPartOfAGroup,
    /// The lagging revision of a renewal is taken for lost history (rule P35).
    RenewalProvesLostHistory,
    /// A release deletes by name only (rule P24).
    DeleteByNameOnly,
    /// The record of a held key is written although the key may be gone (rule P18).
    DescribedUnguarded,
    /// Groups never step back (rule P38).
    GroupsNeverStepBack,
    /// A retained key is deleted at its release (rule P39).
    RetainedKeyDeleted,
    /// A shutdown waits for no body, nor for a retained key to have its own lease (rule P39).
    ShutdownBeforeRetention,
    /// A cycle is cut as it was read, unconfirmed (rule P38).
    CycleUnconfirmed,
    /// A put refused for want of space is taken for one that was not applied (rule P34).
    RefusedIsNotApplied,
    /// A barrier that etcd refused is never sent again (rule P34).
    BarrierNotRepeated,
    /// Only a missing session key proves lost history (rule P35).
    OnlyAWipeIsLostHistory,
}

#[cfg(feature = "simulation")]
thread_local! {
    static MADE: std::cell::Cell<Option<Mistake>> = const { std::cell::Cell::new(None) };
}

/// Has the cores of this thread make a mistake, or none.
#[cfg(feature = "simulation")]
pub fn make(mistake: Option<Mistake>) {
    MADE.set(mistake);
}

/// Whether this mistake is to be made.
#[cfg(feature = "simulation")]
pub fn mistake(mistake: Mistake) -> bool {
    MADE.get() == Some(mistake)
}

/// Never: mistakes are for the simulator.
#[cfg(not(feature = "simulation"))]
pub const fn mistake(_: Mistake) -> bool {
    false
}

#[cfg(feature = "simulation")]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts one step: one element that a loop visits, or one item of the work list.
pub fn step() {
    #[cfg(feature = "simulation")]
    STEPS.set(STEPS.get() + 1);
}

/// How many steps the cores of this thread have taken.
#[cfg(feature = "simulation")]
pub fn taken() -> u64 {
    STEPS.get()
}
