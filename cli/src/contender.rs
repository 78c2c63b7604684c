//! Contender as people read it: its process, its mode, and its times.

use std::time::{Duration, SystemTime};

use etcd_locked::{Contender, Queue, Standing};
use serde_json::{Value, json};

/// Describes its process: service, host and process id, and the function that requested the lock.
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

/// Describes the holders of a name: the first, and the number of others. Permits that may hold it are counted separately.
/// Returns `None` if no process holds it.
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

/// Returns how long it has held its name; `None` for a client of another kind.
pub(crate) fn held_for(contender: &Contender) -> Option<Duration> {
    // During its first second a holder has not yet written the time of its grant.
    let since = contender.holder()?.held_since();
    Some(since.and_then(ago).unwrap_or_default())
}

/// Returns how long it has waited, or had waited when it got the lock.
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

/// Returns the cells that `who` and `top` show: whether it holds the name, its process, its mode, and for how long.
pub(crate) fn cells(contender: &Contender) -> [String; 4] {
    let mode = contender.sharing().word().to_owned();
    [standing(contender).to_owned(), process(contender), mode, time(contender)]
}

/// Returns everything that is known about it. Field names do not change; more may be added.
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

/// Returns how long ago a record's time was by this machine's clock: zero if it is in the future, `None` if the text is not a time.
pub(crate) fn ago(rfc3339: &str) -> Option<Duration> {
    let then = humantime::parse_rfc3339(rfc3339).ok()?;
    Some(SystemTime::now().duration_since(then).unwrap_or_default())
}

/// Formats a duration for people, in at most two units, with seconds as the smallest.
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
