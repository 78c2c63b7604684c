//! B19: what a release sets off among processes that wait for its name: a herd, or as much for 256 of them as for 16.
//!
//! Every process locks the same name again and again, so all but one wait. Each peer is alone on its etcd, which counts for
//! all of its clients.

use std::thread;
use std::time::Instant;

use super::crew::Kind;
use super::crowd::Crowd;
use super::figures::{Spread, Target, number};
use super::row::{Line, Outcome};
use super::server::Server;
use super::side::Side;
use super::wakeups::Wakeups;
use super::{Pace, say};
use crate::Result;

pub(crate) const PEERS: &[Kind] = &[Kind::Go];
/// So many processes are all told of each release, which costs least; more than these must cost no more.
const NEAR: usize = 16;
/// As a multiple of the same with so many processes: what noise may add to no growth.
const MOST: Target = Target::AtMost(1.2);

/// What is counted.
const WHAT: [&str; 3] = [
    "events that etcd sends",
    "messages of any kind that etcd sends",
    "wake-ups of all processes' threads",
];
/// Each a release, in the order of `WHAT`.
type Figures = [f64; WHAT.len()];

/// Of all rounds, in the order of `WHAT`.
type Spreads = [Spread; WHAT.len()];

pub(crate) fn run(pace: &Pace) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut near = None;
    for processes in pace.herd {
        let ours = counted(Kind::Ours, *processes, pace)?;
        for peer in PEERS.iter().filter(|peer| pace.meets(**peer)) {
            let theirs = counted(*peer, *processes, pace)?;
            let lines = lines(*processes, &ours, peer.title(), &theirs, None);
            outcome.lines.extend(lines);
        }
        if let Some(near) = &near {
            let against = format!("{NEAR} processes");
            let lines = lines(*processes, &ours, &against, near, Some(MOST));
            outcome.lines.extend(lines);
        }
        if *processes == NEAR {
            near = Some(ours);
        }
    }
    Ok(outcome)
}

fn lines(
    processes: usize,
    ours: &Spreads,
    against: &str,
    theirs: &Spreads,
    target: Option<Target>,
) -> impl Iterator<Item = Line> {
    let figures = WHAT.iter().zip(ours).zip(theirs);
    figures.map(move |((what, ours), theirs)| {
        let figure = ours.median / theirs.median;
        Line {
            row: "B19",
            work: format!("{what} a release, {processes} processes"),
            ours: ours.shown(number),
            against: against.to_owned(),
            theirs: theirs.shown(number),
            figure: format!("{} ×", number(figure)),
            measured: figure,
            target,
        }
    })
}

/// Counts in all rounds of one peer.
fn counted(kind: Kind, processes: usize, pace: &Pace) -> Result<Spreads> {
    let crowd = Crowd { processes, tasks: 1, names: 1 };
    let server = Server::start()?;
    let mut side = Side::start(kind, crowd, &server.endpoint(), pace)?;
    let mut rounds = Vec::new();
    for _ in 0..pace.pairs {
        side.begin()?;
        let end = Instant::now() + crowd.lead() + crowd.window(pace);
        thread::sleep(crowd.lead());
        let before = Reading::now(&server, &side)?;
        thread::sleep(end.saturating_duration_since(Instant::now()));
        let after = Reading::now(&server, &side)?;
        side.finish()?;
        let releases = side.last();
        if releases <= 0.0 {
            return Err(format!("{} has released nothing", kind.title()));
        }
        rounds.push(after.a_second_since(&before).map(|rate| rate / releases));
    }
    side.end()?;
    let [events, messages, wakeups] = [0, 1, 2].map(|at| {
        let figures = rounds.iter().map(|round: &Figures| round[at]);
        Spread::of(figures).ok_or("there was no round")
    });
    let spreads = [events?, messages?, wakeups?];
    for (what, spread) in WHAT.iter().zip(&spreads) {
        let (kind, shown) = (kind.title(), spread.shown(number));
        say::note(format_args!("{processes} of {kind}: {shown} {what}"));
    }
    Ok(spreads)
}

/// All counters, each with the moment at which it was read: to read those of hundreds of processes takes a while.
struct Reading {
    etcd_at: Instant,
    events: f64,
    messages: f64,
    processes_at: Instant,
    wakeups: Wakeups,
}

impl Reading {
    fn now(server: &Server, side: &Side) -> Result<Self> {
        Ok(Self {
            etcd_at: Instant::now(),
            events: server.metric("etcd_debugging_mvcc_events_total", "")?,
            messages: server.metric("grpc_server_msg_sent_total", "")?,
            processes_at: Instant::now(),
            wakeups: Wakeups::of(&side.crew.processes())?,
        })
    }

    fn a_second_since(&self, before: &Self) -> Figures {
        let etcd = (self.etcd_at - before.etcd_at).as_secs_f64();
        let processes = (self.processes_at - before.processes_at).as_secs_f64();
        [
            (self.events - before.events) / etcd,
            (self.messages - before.messages) / etcd,
            self.wakeups.since(&before.wakeups) as f64 / processes,
        ]
    }
}
