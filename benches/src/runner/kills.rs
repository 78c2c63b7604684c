//! B9: how long a killed holder is in the way.

use std::thread;
use std::time::Duration;

use super::crew::Crew;
use super::figures::{Spread, Target, number, time};
use super::row::{Line, Outcome};
use super::server::Server;
use super::{Pace, say};
use crate::Result;

const KILLS: usize = 5;
const TTL: f64 = 5.0;
/// What etcd may take beyond the TTL: it checks for expired leases twice a second.
const MORE: f64 = 1.0;
/// By then the next holder waits.
const QUEUED: Duration = Duration::from_secs(1);

pub(crate) fn run(_pace: &Pace) -> Result<Outcome> {
    let server = Server::start()?;
    let start = |work, name: usize| Crew::ours(work, &server, &[("first", &name), ("ttl", &TTL)]);
    let mut pairs = Vec::new();
    for name in 0..KILLS {
        let holder = start("hold", name)?;
        let mut next = start("take", name)?;
        next.order(Duration::ZERO)?;
        pairs.push((holder, next));
    }
    thread::sleep(QUEUED);

    let mut killed = Vec::new();
    for (holder, next) in pairs {
        killed.push((holder.kill()?, next));
    }
    let mut after = Vec::new();
    for (at, next) in killed {
        let answers = next.answers(Duration::from_secs_f64(TTL))?;
        let had = answers.first().and_then(|answer| answer.get("at")?.as_f64());
        let had = had.ok_or("the next holder does not say when it had the lock")?;
        let took = had - at.as_secs_f64();
        if took < 0.0 {
            return Err("the next holder had the lock before the first one was killed".to_owned());
        }
        after.push(took);
        next.end()?;
    }
    let spread = Spread::of(after.iter().copied()).ok_or("no holder was killed")?;
    say::note(spread.shown(time));
    Ok(Outcome::of(Line {
        row: "B9",
        work: format!("the next holder after `kill -9`, {KILLS} times, TTL {TTL} s"),
        ours: spread.shown(time),
        against: "TTL".to_owned(),
        theirs: time(TTL),
        figure: format!("{} s at most", number(spread.most)),
        measured: spread.most,
        target: Some(Target::AtMost(TTL + MORE)),
    }))
}
