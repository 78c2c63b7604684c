//! Lanes: threads that play rounds at once, each the next one that none has begun.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::process::interrupted;
use crate::{Result, say};

/// Plays all rounds; the results are in the order of the rounds.
///
/// `play` gets what its lane has kept of the rounds before, a round, and the number of that round.
pub(crate) fn play<Round: Sync, Kept: Default, Seen: Send>(
    rounds: &[Round],
    lanes: usize,
    play: impl Fn(&mut Kept, &Round, usize) -> Seen + Sync,
) -> Result<Vec<Seen>> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let lane = || {
        let mut kept = Kept::default();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(round) = rounds.get(number).filter(|_| !interrupted()) else {
                return;
            };
            let seen = play(&mut kept, round, number);
            if let Ok(mut results) = results.lock() {
                results.push((number, seen));
                if results.len().is_multiple_of(50) {
                    say::note(format_args!("{} of {}", results.len(), rounds.len()));
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..lanes.min(rounds.len()) {
            scope.spawn(lane);
        }
    });
    if interrupted() {
        return Err("interrupted".to_owned());
    }
    let results = results.into_inner();
    let mut results = results.map_err(|_| "a thread of xtask has panicked".to_owned())?;
    results.sort_by_key(|(number, _)| *number);
    Ok(results.into_iter().map(|(_, seen)| seen).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_is_played_once() {
        let rounds = Vec::from_iter(0..200_usize);
        let played = play(&rounds, 4, |kept: &mut usize, round, number| {
            *kept += 1;
            (*round, number, *kept)
        });
        let played = played.expect("results");
        let numbers: Vec<_> = played.iter().map(|it| (it.0, it.1)).collect();
        assert_eq!(numbers, Vec::from_iter((0..200).map(|at| (at, at))));
        // One lane at least has played a fourth of them.
        assert!(played.iter().any(|it| it.2 >= 50));
    }
}
