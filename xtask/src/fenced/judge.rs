//! Judge of a round: which of its writes were committed, in which order, and whether that is what their holders were told.

use super::round::{Body, End, Job, Played, Step, Write};
use crate::Result;

/// What became of the first holder's write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Committed before the next holder's.
    Before,
    Absent,
    /// Committed after the next holder's.
    Stale,
}

/// Judges a round by its writes, in the order of their commits.
pub(super) fn judge(job: Job, played: &Played, ledger: &[Write]) -> Result<Fate> {
    let (told, next_told) = (played.first, played.next);
    let wrong = |what: &str| {
        let name = &played.name;
        Err(format!(
            "{name}: {what}; the first was told {told:?}, the next {next_told:?}, and the ledger has {ledger:?}"
        ))
    };
    let (first, next): (Vec<&Write>, Vec<&Write>) = ledger.iter().partition(|it| it.is_first);
    let (&[next], [] | [_], End::Committed) = (&next[..], &first[..], next_told) else {
        return wrong("the next holder has not written, or one has written twice");
    };
    let fate = match first.first() {
        None => Fate::Absent,
        Some(first) if first.token >= next.token => return wrong("tokens do not grow"),
        Some(_) if goes_down(ledger) => Fate::Stale,
        Some(_) => Fate::Before,
    };
    match (told, fate) {
        (End::Committed, Fate::Absent) => return wrong("what was committed is missing"),
        (End::Lost, Fate::Before | Fate::Stale) => {
            return wrong("what `fenced` refused is there");
        }
        _ => {}
    }
    // With other bodies or steps it may have been stopped in the middle of a poll, or after its commit.
    let is_gated = job.body == Body::Dropped && job.step != Step::Anywhere;
    if is_gated && (told, fate) != (End::Dropped, Fate::Absent) {
        return wrong("a body that waited was polled after the loss of its lock");
    }
    let is_late = job.fenced && job.step == Step::BeforeFence;
    if is_late && (fate != Fate::Absent || told == End::DatabaseFailed) {
        return wrong(
            "what came too late was refused neither by `fenced` nor at the gate, or the database failed",
        );
    }
    Ok(fate)
}

/// Returns whether a token is lower than one that was committed before it.
pub(super) fn goes_down(ledger: &[Write]) -> bool {
    ledger.windows(2).any(|two| two[0].token > two[1].token)
}

#[cfg(test)]
mod tests {
    use super::super::round::Database;
    use super::*;

    const FIRST: Write = Write { is_first: true, token: 7 };
    const NEXT: Write = Write { is_first: false, token: 9 };

    fn judged(step: Step, body: Body, ends: [End; 2], ledger: &[Write]) -> Result<Fate> {
        let job = Job { fenced: true, database: Database::Sqlite, step, body };
        let [first, next] = ends;
        let played = Played { name: "ledgers/1".to_owned(), first, next, ledger: None };
        judge(job, &played, ledger)
    }

    #[test]
    fn fate_follows_from_the_order_of_commits() {
        let told = |first, ledger: &[Write]| {
            judged(Step::Written, Body::Polled, [first, End::Committed], ledger)
        };
        assert_eq!(told(End::Committed, &[FIRST, NEXT]), Ok(Fate::Before));
        assert_eq!(told(End::Committed, &[NEXT, FIRST]), Ok(Fate::Stale));
        assert_eq!(told(End::DatabaseFailed, &[NEXT]), Ok(Fate::Absent));
        // The commit was on its way when the gate dropped the body.
        assert_eq!(told(End::Dropped, &[FIRST, NEXT]), Ok(Fate::Before));
        assert_eq!(told(End::Dropped, &[NEXT, FIRST]), Ok(Fate::Stale));
    }

    #[test]
    fn holders_are_told_what_the_ledger_says() {
        let equal = Write { token: 9, ..FIRST };
        for (first, next, ledger) in [
            (End::Committed, End::Committed, &[NEXT][..]),
            (End::Lost, End::Committed, &[FIRST, NEXT]),
            (End::Lost, End::Committed, &[]),
            (End::Lost, End::Lost, &[]),
            (End::Committed, End::Committed, &[FIRST, FIRST, NEXT]),
            (End::Committed, End::Committed, &[equal, NEXT]),
        ] {
            let verdict = judged(Step::Anywhere, Body::GoesOn, [first, next], ledger);
            assert!(verdict.is_err(), "{verdict:?}");
        }
    }

    #[test]
    fn a_waiting_body_must_be_dropped_and_a_late_one_refused() {
        let waits = |first, ledger: &[Write]| {
            judged(Step::Written, Body::Dropped, [first, End::Committed], ledger)
        };
        assert_eq!(waits(End::Dropped, &[NEXT]), Ok(Fate::Absent));
        assert!(waits(End::Dropped, &[FIRST, NEXT]).is_err());
        assert!(waits(End::DatabaseFailed, &[NEXT]).is_err());
        let late = |first, ledger: &[Write]| {
            judged(Step::BeforeFence, Body::GoesOn, [first, End::Committed], ledger)
        };
        assert_eq!(late(End::Lost, &[NEXT]), Ok(Fate::Absent));
        assert!(late(End::DatabaseFailed, &[NEXT]).is_err());
        assert!(late(End::Committed, &[FIRST, NEXT]).is_err());
    }
}
