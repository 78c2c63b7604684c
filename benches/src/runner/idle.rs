//! B7: what idle locks cost etcd and this process, for a hundred and for ten thousand of them.

use std::thread;
use std::time::Duration;

use super::crew::{Crew, number_of};
use super::figures::{Target, number, time};
use super::row::{Line, Outcome};
use super::server::Server;
use super::{Pace, say};
use crate::Result;

/// The default, which the worker has.
const TTL: f64 = 15.0;
const LOCKS: [u32; 2] = [100, 10_000];
/// By then the engine has opened what watches it opens for holders, once for each lock.
const SETTLED: Duration = Duration::from_secs(5);
/// Of requests and of processor time, as a multiple.
const MOST: Target = Target::AtMost(1.1);

/// What was counted while locks were held.
struct Counted {
    /// Messages to etcd, of any kind.
    requests: f64,
    /// The renewals among them.
    renewals: f64,
    leases: f64,
    /// Processor time of the process that holds them.
    processor: f64,
}

pub(crate) fn run(pace: &Pace) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut counted = Vec::new();
    for locks in LOCKS {
        let count = held(locks, pace)?;
        outcome.lines.push(renewals(locks, &count, pace)?);
        counted.push(count);
    }
    let [few, many] = counted.as_slice() else {
        return Err("two numbers of locks are compared".to_owned());
    };
    for (what, of, show) in [
        ("requests of any kind", [few.requests, many.requests], number as fn(f64) -> String),
        ("processor time of the holder", [few.processor, many.processor], time),
    ] {
        let [few, many] = of;
        if few <= 0.0 {
            return Err(format!("no {what} while {} locks are held", LOCKS[0]));
        }
        outcome.lines.push(Line {
            row: "B7",
            work: format!("{what}, {} locks held for {:?}", number(LOCKS[1].into()), pace.held),
            ours: show(many),
            against: format!("{} locks", LOCKS[0]),
            theirs: show(few),
            figure: format!("{} ×", number(many / few)),
            measured: many / few,
            target: Some(MOST),
        });
    }
    Ok(outcome)
}

fn held(locks: u32, pace: &Pace) -> Result<Counted> {
    let server = Server::start()?;
    let mut crew = Crew::ours("hold", &server, &[("names", &locks)])?;
    let received = |label: &str| server.metric("grpc_server_msg_received_total", label);
    let all =
        || -> Result<[f64; 2]> { Ok([received("")?, received("grpc_method=\"LeaseKeepAlive\"")?]) };
    say::note(format_args!("{locks} locks, for {:?}", pace.held));
    thread::sleep(SETTLED);
    crew.single(Duration::ZERO, Duration::ZERO)?; // its processor time is counted from here on
    let before = all()?;
    thread::sleep(pace.held);
    let after = all()?;
    let answer = crew.single(Duration::ZERO, Duration::ZERO)?;
    // Now, as one that was opened in the first rush and not needed is given back soon.
    let leases = server.metric("etcd_debugging_lease_granted_total", "")?
        - server.metric("etcd_debugging_lease_revoked_total", "")?;
    crew.end()?;
    if leases < 1.0 {
        return Err("etcd knows of no lease while locks are held".to_owned());
    }
    let still = number_of(&answer, "held")?;
    if still != f64::from(locks) {
        return Err(format!("of {locks} locks {still} are still held"));
    }
    let counted = Counted {
        requests: after[0] - before[0],
        renewals: after[1] - before[1],
        leases,
        processor: number_of(&answer, "processor")?,
    };
    say::note(format_args!(
        "{} requests, {} of them renewals; {} of processor time",
        counted.requests,
        counted.renewals,
        time(counted.processor)
    ));
    Ok(counted)
}

fn renewals(locks: u32, counted: &Counted, pace: &Pace) -> Result<Line> {
    let periods = pace.held.as_secs_f64() / (TTL / 3.0);
    let (leases, renewals) = (counted.leases, counted.renewals);
    let expected = leases * periods;
    Ok(Line {
        row: "B7",
        work: format!("renewals, {} locks held for {:?}", number(locks.into()), pace.held),
        ours: format!("{renewals} of {leases} lease(s)"),
        against: "1 a lease and TTL/3".to_owned(),
        theirs: number(expected),
        figure: format!("{renewals} renewals"),
        measured: renewals,
        // A window that begins and ends anywhere sees one more or one less of each lease.
        target: Some(Target::Within(expected - leases, expected + leases)),
    })
}
