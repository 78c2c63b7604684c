//! Row B7: what a hundred and ten thousand idle locks cost etcd and their process.

use std::thread;
use std::time::Duration;

use super::crew::{Crew, number_of};
use super::figures::{Target, number, time};
use super::row::{Line, Outcome};
use super::server::Server;
use super::{Pace, note};
use crate::Result;

/// TTL of the worker's locks, in seconds.
const TTL: f64 = 15.0;
const LOCKS: [u32; 2] = [100, 10_000];
/// Limit of requests and of processor time, as a multiple.
const MOST: Target = Target::AtMost(1.1);

/// Counts while locks were held.
struct Counted {
    /// Messages to etcd, of any kind.
    requests: f64,
    /// Renewals among them.
    renewals: f64,
    leases: f64,
    /// Processor time of the process that holds them.
    processor: f64,
}

pub(crate) fn run(pace: &Pace) -> Result<Outcome> {
    let time_held = Duration::from_secs(pace.either(60, 5));
    let [few, many] = [held(LOCKS[0], time_held)?, held(LOCKS[1], time_held)?];
    let line = |what: &str, few, many, show| {
        let work = format!("{what}, {} locks held for {:?}", number(LOCKS[1].into()), time_held);
        Line::medians(work, many, format!("{} locks", LOCKS[0]), few, show, MOST)
    };
    Ok(Outcome::of([
        renewals(LOCKS[0], &few, time_held),
        renewals(LOCKS[1], &many, time_held),
        line("requests of any kind", few.requests, many.requests, number),
        line("processor time of the holder", few.processor, many.processor, time),
    ]))
}

fn held(locks: u32, time_held: Duration) -> Result<Counted> {
    let server = Server::start()?;
    let mut crew = Crew::ours("hold", &server, &[("names", &locks), ("ttl", &TTL)])?;
    let received = |label: &str| server.metric("grpc_server_msg_received_total", label);
    let all =
        || -> Result<[f64; 2]> { Ok([received("")?, received("grpc_method=\"LeaseKeepAlive\"")?]) };
    note(format_args!("{locks} locks, for {:?}", time_held));
    // By then the engine has opened its watches for holders, which it does once for each lock.
    thread::sleep(Duration::from_secs(5));
    crew.single()?; // its processor time counts from here
    let before = all()?;
    thread::sleep(time_held);
    let after = all()?;
    let answer = crew.single()?;
    // Read only now: a lease that was granted in the first rush and not needed has been revoked by then.
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
    let [requests, renewals] = [after[0] - before[0], after[1] - before[1]];
    Ok(Counted { requests, renewals, leases, processor: number_of(&answer, "processor")? })
}

fn renewals(locks: u32, counted: &Counted, time_held: Duration) -> Line {
    let (leases, renewals) = (counted.leases, counted.renewals);
    let expected = leases * time_held.as_secs_f64() / (TTL / 3.0);
    Line {
        work: format!("renewals, {} locks held for {:?}", number(locks.into()), time_held),
        ours: format!("{renewals} of {leases} lease(s)"),
        against: "1 a lease and TTL/3".to_owned(),
        theirs: number(expected),
        figure: format!("{renewals} renewals"),
        measured: renewals,
        // A window may contain one renewal more or less of each lease, depending on where it begins and ends.
        target: Some(Target::Within(expected - leases, expected + leases)),
    }
}
