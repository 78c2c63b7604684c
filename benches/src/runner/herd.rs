//! Row B19: what a release triggers among processes that wait for its name: a herd, or no more for 256 of them than for 16.
//!
//! Every process locks the same name repeatedly, so all but one wait. Each peer is alone on its etcd, whose counters are for
//! all clients together.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::Instant;

use super::figures::{Spread, Target, number};
use super::row::{Line, Outcome};
use super::server::Server;
use super::side::{Crowd, Side};
use super::{Pace, note};
use crate::Result;
use crate::kind::Kind;

pub(crate) const PEERS: &[Kind] = &[Kind::Go];
/// Number of processes up to which all are notified of each release, which costs least. More processes must not cost more.
const NEAR: usize = 16;
/// Limit of the cost, as a multiple of that with `NEAR` processes: no growth, plus noise.
const MOST: Target = Target::AtMost(1.2);

/// Names of the counters.
const WHAT: [&str; 2] = ["events that etcd sends", "wake-ups of all processes' threads"];
/// Counts per release of all rounds, in the order of `WHAT`.
type Spreads = [Spread; WHAT.len()];

pub(crate) fn run(pace: &Pace) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut near = None;
    for processes in pace.either(&[2, 16, 64, 256][..], &[16, 64]) {
        let ours = counted(Kind::Ours, *processes, pace)?;
        let mut add = |against: &str, theirs: &Spreads, target: Option<Target>| {
            outcome.lines.extend(WHAT.iter().zip(&ours).zip(theirs).map(
                |((what, ours), theirs)| {
                    let work = format!("{what} a release, {processes} processes");
                    Line::medians(work, *ours, against, *theirs, number, target)
                },
            ));
        };
        for peer in PEERS.iter().filter(|peer| pace.meets(**peer)) {
            add(peer.title(), &counted(*peer, *processes, pace)?, None);
        }
        if let Some(near) = &near {
            add(&format!("{NEAR} processes"), near, Some(MOST));
        }
        if *processes == NEAR {
            near = Some(ours);
        }
    }
    Ok(outcome)
}

/// Returns the counts in all rounds of one peer.
fn counted(kind: Kind, processes: usize, pace: &Pace) -> Result<Spreads> {
    let crowd = Crowd { processes, tasks: 1, names: 1 };
    let server = Server::start()?;
    let mut side = Side::start(kind, "calls", crowd, &server.endpoint(), &[], pace)?;
    let mut rounds = WHAT.map(|_| Vec::new());
    for _ in 0..pace.pairs {
        side.crew.order(side.lead)?;
        let end = Instant::now() + side.lead + side.window;
        thread::sleep(side.lead);
        let before = Reading::now(&server, &side)?;
        thread::sleep(end.saturating_duration_since(Instant::now()));
        let after = Reading::now(&server, &side)?;
        side.finish()?;
        for (figures, rate) in rounds.iter_mut().zip(after.a_second_since(&before)) {
            figures.push(rate / side.last());
        }
    }
    side.crew.end()?;
    let [events, wakeups] = &rounds;
    let spreads = [Spread::of(events)?, Spread::of(wakeups)?];
    for (what, spread) in WHAT.iter().zip(&spreads) {
        note(format_args!("{processes} of {}: {} {what}", kind.title(), spread.shown(number)));
    }
    Ok(spreads)
}

/// Reading of all counters, each with its time, because it takes a while to read those of hundreds of processes.
struct Reading {
    etcd_at: Instant,
    events: f64,
    processes_at: Instant,
    /// Number of times that each thread went to sleep voluntarily and ran again, by its path in `/proc`.
    wakeups: BTreeMap<String, f64>,
}

impl Reading {
    fn now(server: &Server, side: &Side) -> Result<Self> {
        Ok(Self {
            etcd_at: Instant::now(),
            events: server.metric("etcd_debugging_mvcc_events_total", "")?,
            processes_at: Instant::now(),
            wakeups: wakeups(&side.crew.processes())?,
        })
    }

    fn a_second_since(&self, before: &Self) -> [f64; WHAT.len()] {
        let etcd = (self.etcd_at - before.etcd_at).as_secs_f64();
        let processes = (self.processes_at - before.processes_at).as_secs_f64();
        // Without those of threads that have ended.
        let wakeups = self.wakeups.iter();
        let wakeups =
            wakeups.map(|(thread, count)| count - before.wakeups.get(thread).unwrap_or(&0.0));
        [(self.events - before.events) / etcd, wakeups.sum::<f64>() / processes]
    }
}

fn wakeups(processes: &[u32]) -> Result<BTreeMap<String, f64>> {
    let mut counts = BTreeMap::new();
    for process in processes {
        let folder = format!("/proc/{process}/task");
        let failed = |error: std::io::Error| format!("{folder}: {error}");
        for thread in fs::read_dir(&folder).map_err(failed)?.flatten() {
            let file = thread.path().join("status");
            // A thread that has just ended has no count.
            let Ok(status) = fs::read_to_string(&file) else { continue };
            let mut lines = status.lines();
            let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            let count = count.and_then(|count| count.trim().parse().ok());
            let count = count.ok_or("/proc does not tell wake-ups")?;
            counts.insert(file.to_string_lossy().into_owned(), count);
        }
    }
    Ok(counts)
}
