//! Remains: keys that are left, workers that have died, lines that were logged.

use std::collections::BTreeMap;

use super::faults::Fault;
use super::verdicts::{Breach, Verdicts};
use crate::history::{Event, Said, What};

/// The most lines a process may write about one fault.
const LINES: u64 = 10;

/// When a process wrote what.
type Lines<'a> = Vec<(u64, &'a str)>;

pub(super) fn judge(events: &[Event], faults: &[Fault], verdicts: &mut Verdicts) {
    for Event { at, what } in events {
        match what {
            What::Left { keys } if !keys.is_empty() => {
                let text = format!("{} keys and leases: {}", keys.len(), keys.join(", "));
                verdicts.breach(Breach::Left, *at, &[], &[], text);
            }
            What::Idle { keys } if !keys.is_empty() => {
                let text =
                    format!("{} keys after all calls had ended: {}", keys.len(), keys.join(", "));
                verdicts.breach(Breach::Left, *at, &[], &[], text);
            }
            What::Said { process, said: Said::Drained { left, .. } } if *left > 0 => {
                let text = format!("process {process} says that it has left {left} locks");
                verdicts.breach(Breach::Left, *at, &[], &[], text);
            }
            What::Exited { process, well: false, hung } => {
                let text = match hung {
                    true => format!("process {process} did not end when it was asked to"),
                    false => format!("process {process} has ended by itself"),
                };
                verdicts.breach(Breach::Died, *at, &[], &[], text);
            }
            _ => {}
        }
    }
    // The fault that began last before a line is taken for its cause.
    let mut lines: BTreeMap<(u32, Option<u32>), Lines<'_>> = BTreeMap::new();
    for Event { at, what } in events {
        if let What::Said { process, said: Said::Logged { text, .. } } = what {
            let cause = faults.iter().filter(|fault| fault.begun <= *at);
            let cause = cause.max_by_key(|fault| fault.begun).map(|fault| fault.number);
            lines.entry((*process, cause)).or_default().push((*at, text));
        }
    }
    for ((process, _), lines) in &lines {
        let many = lines.len() as u64;
        verdicts.lines += many;
        verdicts.most_lines = verdicts.most_lines.max(many);
        if let Some((at, line)) = lines.last().filter(|_| many > LINES) {
            let text =
                format!("process {process} wrote {many} lines about one fault, the last: {line}");
            verdicts.breach(Breach::Logs, *at, &[], &[], text);
        }
    }
}
