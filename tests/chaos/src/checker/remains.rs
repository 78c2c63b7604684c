//! Judge of remains: keys that are left, workers that have died, and lines that were logged.

use std::collections::BTreeMap;

use super::Known;
use super::verdicts::{Breach, Verdicts};
use crate::history::{Event, Said, What};

/// Limit of the lines that a process may write about one fault.
const LINES: usize = 10;

type Lines<'a> = Vec<(u64, &'a str)>;

pub(super) fn judge(known: &Known<'_>, verdicts: &mut Verdicts) {
    // Lines that each process logged about each fault: the last one that began before a line counts as its cause.
    let mut lines: BTreeMap<(u32, Option<u32>), Lines<'_>> = BTreeMap::new();
    for Event { at, what } in known.events {
        let (breach, text) = match what {
            What::Left { keys } if !keys.is_empty() => {
                (Breach::KeysLeft, format!("{} keys and leases: {}", keys.len(), keys.join(", ")))
            }
            What::Idle { keys } if !keys.is_empty() => {
                let (many, keys) = (keys.len(), keys.join(", "));
                (Breach::KeysLeft, format!("{many} keys after all calls had ended: {keys}"))
            }
            What::Said { process, said: Said::Drained { left, .. } } if *left > 0 => {
                (Breach::KeysLeft, format!("process {process} says that it has left {left} locks"))
            }
            What::Exited { process, well: false, hung: true } => {
                (Breach::WorkerDied, format!("process {process} did not end when it was asked to"))
            }
            What::Exited { process, well: false, .. } => {
                (Breach::WorkerDied, format!("process {process} has ended by itself"))
            }
            What::Said { process, said: Said::Logged { text, .. } } => {
                let begun = known.faults.iter().filter(|fault| fault.begun <= *at);
                let cause = begun.max_by_key(|fault| fault.begun).map(|fault| fault.number);
                lines.entry((*process, cause)).or_default().push((*at, text));
                continue;
            }
            _ => continue,
        };
        verdicts.breach(breach, *at, &[], &[], text);
    }
    for ((process, _), lines) in lines.iter().filter(|(_, lines)| lines.len() > LINES) {
        let (at, last) = lines[lines.len() - 1];
        let many = lines.len();
        let text =
            format!("process {process} wrote {many} lines about one fault, the last: {last}");
        verdicts.breach(Breach::LogStorm, at, &[], &[], text);
    }
}
