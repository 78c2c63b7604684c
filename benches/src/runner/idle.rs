//! P7: what keeping locks costs etcd, in its own count of renewals.

use std::thread;

use super::crew::{Crew, Kind};
use super::figures::{Target, number};
use super::row::{Line, Outcome};
use super::server::Server;
use super::{Pace, say};
use crate::Result;

/// The default, which the worker has.
const TTL: f64 = 15.0;

pub(crate) fn run(pace: &Pace) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for locks in [100, 10_000] {
        outcome.lines.push(held(locks, pace)?);
    }
    Ok(outcome)
}

fn held(locks: u32, pace: &Pace) -> Result<Line> {
    let server = Server::start()?;
    let args = [
        "--work",
        "hold",
        "--endpoint",
        &server.endpoint(),
        "--names",
        &locks.to_string(),
    ];
    let crew = Crew::start(Kind::Ours, 1, &args.map(str::to_owned))?;
    let renewals = || {
        server.metric(
            "grpc_server_msg_received_total",
            "grpc_method=\"LeaseKeepAlive\"",
        )
    };
    let before = renewals()?;
    say::note(format_args!("{locks} locks, for {:?}", pace.held));
    thread::sleep(pace.held);
    let counted = renewals()? - before;
    // Now, as one that was opened in the first rush and not needed is given back soon.
    let leases = server.metric("etcd_debugging_lease_granted_total", "")?
        - server.metric("etcd_debugging_lease_revoked_total", "")?;
    crew.end()?;

    let periods = pace.held.as_secs_f64() / (TTL / 3.0);
    if leases < 1.0 {
        return Err("etcd knows of no lease while locks are held".to_owned());
    }
    let expected = leases * periods;
    // A window that begins and ends anywhere sees one more or one less of each lease.
    let target = Target::Within(expected - leases, expected + leases);
    Ok(Line {
        row: "P7",
        work: format!("{} locks held for {:?}", number(locks.into()), pace.held),
        ours: format!("{counted} of {leases} lease(s)"),
        against: "1 a lease and TTL/3".to_owned(),
        theirs: number(expected),
        figure: format!("{counted} renewals"),
        target: Some(target),
        verdict: target.verdict(counted),
    })
}
