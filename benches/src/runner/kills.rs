//! Row B9: how long a killed holder blocks the next one.

use std::thread;
use std::time::Duration;

use super::Pace;
use super::crew::{Crew, number_of};
use super::figures::{Spread, Target, number, time};
use super::row::{Line, Outcome};
use super::server::Server;
use crate::Result;

const KILLS: usize = 5;
const TTL: f64 = 5.0;
/// Time that etcd may take beyond the TTL, because it checks for expired leases twice a second.
const MORE: f64 = 1.0;
/// Time by which the next holder waits.
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
        let took = number_of(&answers[0], "at")? - at.as_secs_f64();
        if took < 0.0 {
            return Err("the next holder had the lock before the first one was killed".to_owned());
        }
        after.push(took);
        next.end()?;
    }
    let (spread, work) = (Spread::of(&after)?, format!("{KILLS} times, TTL {TTL} s"));
    let work = format!("the next holder after `kill -9`, {work}");
    Ok(Outcome::of([Line {
        figure: format!("{} s at most", number(spread.most)),
        measured: spread.most,
        ..Line::medians(work, spread, "TTL", TTL, time, Target::AtMost(TTL + MORE))
    }]))
}
