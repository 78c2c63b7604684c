//! Contender as a person reads it: which process, in what mode, since when.

use std::time::{Duration, SystemTime};

use etcd_locked::{Contender, Queue, Standing};
use serde_json::{Value, json};

/// Who it is: service, host and process, and the function that asked.
pub(crate) fn process(contender: &Contender) -> String {
    match contender.holder() {
        Some(holder) => {
            let function = holder.function().map(|function| format!(" {function}"));
            let (service, host, pid) = (holder.service(), holder.host(), holder.pid());
            format!("{service} {host}:{pid}{}", function.unwrap_or_default())
        }
        None => format!("not of etcd-locked: {}", contender.shown_key()),
    }
}

/// Who holds a name: the first, and how many more; permits that may hold it are counted apart. Nothing if no process
/// does.
pub(crate) fn holders(queue: &Queue) -> Option<String> {
    let mut holds = queue.holders();
    let mut text = process(holds.next()?);
    let (more, may): (Vec<_>, Vec<_>) = holds.partition(|it| it.standing() == Standing::Holds);
    if !more.is_empty() {
        text += &format!(" and {} more", more.len());
    }
    if !may.is_empty() {
        text += &format!(", {} may hold it", may.len());
    }
    Some(text)
}

/// How long it has held its name; nothing of a client of another kind.
pub(crate) fn held_for(contender: &Contender) -> Option<Duration> {
    // In its first second a holder has not written since when.
    let since = contender.holder()?.held_since();
    Some(since.and_then(ago).unwrap_or_default())
}

/// How long it has waited, or had waited.
pub(crate) fn queued_for(contender: &Contender) -> Option<Duration> {
    ago(contender.holder()?.queued_since())
}

fn standing(contender: &Contender) -> &'static str {
    match contender.standing() {
        Standing::Holds => "holds",
        Standing::MayHold => "may hold",
        _ => "waits",
    }
}

pub(crate) fn time(contender: &Contender) -> String {
    let time = match contender.standing() {
        Standing::Holds => held_for(contender),
        _ => queued_for(contender),
    };
    match (time, contender.holder()) {
        (Some(time), _) => shown(time),
        (None, Some(_)) => "<1s".to_owned(),
        (None, None) => "?".to_owned(),
    }
}

/// What `who` and `top` show of it: whether it holds the name, which process it is, in what mode, and for how long.
pub(crate) fn cells(contender: &Contender) -> [String; 4] {
    let mode = contender.sharing().word().to_owned();
    [standing(contender).to_owned(), process(contender), mode, time(contender)]
}

/// All that is known of it. Names of fields stay as they are; more may come.
pub(crate) fn object(contender: &Contender) -> Value {
    let holder = contender.holder();
    json!({
        "standing": standing(contender),
        "mode": contender.sharing().word(),
        "service": holder.map(|it| it.service()),
        "host": holder.map(|it| it.host()),
        "pid": holder.map(|it| it.pid()),
        "function": holder.and_then(|it| it.function()),
        "template": holder.and_then(|it| it.template()),
        "queued_since": holder.map(|it| it.queued_since()),
        "held_since": holder.and_then(|it| it.held_since()),
        "key": contender.shown_key(),
        "create_revision": contender.created(),
        "mod_revision": contender.changed(),
        "lease": contender.lease().map(|lease| format!("{lease:x}")),
        "group": contender.group(),
    })
}

/// How long ago a time of a record was, by this machine's clock: zero if it is ahead, `None` if the text is not a time.
pub(crate) fn ago(rfc3339: &str) -> Option<Duration> {
    let then = humantime::parse_rfc3339(rfc3339).ok()?;
    Some(SystemTime::now().duration_since(then).unwrap_or_default())
}

/// A duration for people: two units at most, seconds being the smallest.
pub(crate) fn shown(duration: Duration) -> String {
    let secs = duration.as_secs();
    let units = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    let first = units.iter().position(|(_, of)| secs >= *of);
    let Some(first) = first else {
        return "<1s".to_owned();
    };
    let (unit, of) = units[first];
    let rest = units.get(first + 1).filter(|(_, of)| secs % units[first].1 >= *of);
    match rest {
        Some((smaller, small)) => format!("{}{unit} {}{smaller}", secs / of, secs % of / small),
        None => format!("{}{unit}", secs / of),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        let texts = [(0, "<1s"), (59, "59s"), (3_599, "59m 59s"), (3_601, "1h"), (90_061, "1d 1h")];
        for (secs, text) in texts {
            assert_eq!(shown(Duration::from_secs(secs)), text);
        }
    }
}
