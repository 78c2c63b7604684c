//! Run of a cluster, a crew and a schedule, from the first call to the last key.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use etcd_locked_devkit::process::{interrupted, output};
use etcd_locked_devkit::{Cluster, Gateway, Result, Setup, binary, until};
use fastrand::Rng;

use crate::checker;
use crate::clock::now;
use crate::crew::Crew;
use crate::history::{Run, What};
use crate::login;
use crate::nemesis::{Nemesis, first};
use crate::options::{Options, Who};
use crate::schedule::{Kind, MEMBERS, Step, plan};
use crate::stalls;
use crate::witness::Witness;
use crate::worker::calls::HOT;

/// Calm at the end, in which every name must be served.
const CALM: Duration = Duration::from_secs(15);
/// Longest time for which the nemesis waits until every hot name is served again.
const RECOVERY_LIMIT: Duration = Duration::from_secs(30);
/// Time after which every lease without renewals has expired: two TTLs, as after a change of leader, and the wait for etcd.
const EXPIRY_LIMIT: Duration = Duration::from_secs(26);

/// How long the witness may take to read the last lines of the workers.
const READ_LIMIT: Duration = Duration::from_secs(5);
/// How long a key may exist after its last call: it lingers, then a delete is sent.
const RELEASE_LIMIT: Duration = Duration::from_secs(3);
const DRAIN_LIMIT: Duration = Duration::from_secs(60);
const NAMES: &str = "locks/";
/// Prefix of the keys of names that stay locked for a while.
const RETAINED: &str = "locks/rest/";
/// Longest time for which these stay: the shortest lease that etcd grants, plus the time until it looks for expired ones.
const RETENTION_LIMIT: Duration = Duration::from_secs(5);
/// How long etcd may take to list its keys and leases.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Plays a run; the witness records its history.
pub(crate) fn play(options: &Options, witness: &Witness) -> Result<()> {
    let started = Instant::now();
    let faults = options.time.saturating_sub(CALM + Duration::from_secs(5));
    let steps = plan(options.seed, faults, &options.only);
    println!("schedule of seed {}:", options.seed);
    for step in &steps {
        println!("  {step}");
    }
    witness.record(What::Run(Run {
        seed: options.seed,
        mix: options.mix.name.to_owned(),
        etcd: version()?,
        who: options.who,
        seconds: options.time.as_secs(),
        only: options.only.iter().map(Kind::to_string).collect(),
        client: options.client.clone(),
        commit: commit(),
        started: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
    }));
    // Without the second flag, etcd requires every member to be connected for five seconds before one is replaced.
    let setup = Setup::default().flags([login::CHEAP, "--strict-reconfig-check=false"]);
    let mut cluster = Cluster::start_with(MEMBERS, setup)?;
    cluster.enable_auth(login::USER, login::PASSWORD, &login::PREFIXES)?;
    let watched = witness.clone();
    stalls::watch(move |since| watched.record(What::Stalled { since }));
    let (asked, watched) = (stalls::Asked::default(), witness.clone());
    asked.are(&cluster);
    asked.watch(move |since| watched.record(What::Silent { since }));
    let crew = Crew::start(&cluster, witness, options)?;
    until("every hot name is served", RECOVERY_LIMIT, || {
        witness.has_served(&crew.numbers(), HOT as usize, 0)
    })?;

    let end = started + options.time - CALM;
    let random = Rng::with_seed(options.seed);
    let mut nemesis = Nemesis { cluster, crew, witness: witness.clone(), asked, random, faults: 0 };
    for step in &steps {
        if Instant::now() + step.lasts > end || interrupted() {
            break;
        }
        carry_out(step, &mut nemesis)?;
        // The mistake has been detected.
        if options.who.is_mistaken() {
            let violations = checker::judge(&witness.history()).violations;
            if violations.iter().any(|violation| violation.breach.is_unsafe()) {
                return Ok(());
            }
        }
    }
    while Instant::now() < started + options.time && !interrupted() {
        thread::sleep(Duration::from_millis(100));
    }
    let Nemesis { cluster, mut crew, .. } = nemesis;
    crew.tend()?;
    witness.record(What::Draining);
    crew.tell("drain");
    // A worker that ended by itself or was killed leaves keys until its lease expires.
    let expiry =
        |died: u64| EXPIRY_LIMIT.saturating_sub(Duration::from_nanos(now().saturating_sub(died)));
    // Peers may leave keys until they revoke their leases, which they do not have to do.
    let workers = crew.numbers();
    let idle = || witness.are_idle(&workers);
    // Calls that have not ended are seen at the end of the run.
    if !options.who.is_peer() && until("all calls have ended", DRAIN_LIMIT, idle).is_ok() {
        let keys = remains(&cluster, expiry(crew.died).max(RELEASE_LIMIT), false);
        witness.record(What::Idle { keys });
    }
    let clean = crew.end();
    witness.settle(READ_LIMIT);
    let ours = clean && options.who == Who::Ours;
    let keys = remains(&cluster, if ours { expiry(crew.died) } else { EXPIRY_LIMIT }, true);
    witness.record(What::Left { keys });
    witness.record(What::Over);
    match interrupted() {
        true => Err("interrupted".to_owned()),
        false => Ok(()),
    }
}

/// Plays one step, and waits until all names are served again.
fn carry_out(step: &Step, nemesis: &mut Nemesis) -> Result<()> {
    println!("{step}");
    let mut open = Vec::new();
    for fault in &step.faults {
        open.extend(nemesis.begin(*fault)?);
    }
    thread::sleep(step.lasts);
    // The first fault heals last, so the time until its end is its own.
    for fault in open.into_iter().rev() {
        nemesis.heal(fault)?;
    }
    let (healed, workers) = (now(), nemesis.crew.numbers());
    let served = || nemesis.witness.has_served(&workers, HOT as usize, healed);
    // The checker judges names that are not served.
    let _ = until("every hot name is served", RECOVERY_LIMIT, served);
    thread::sleep(step.pause);
    nemesis.crew.tend()
}

/// Returns the keys of names that still exist after `patience`; at the `end` also session keys, and leases.
fn remains(cluster: &Cluster, patience: Duration, end: bool) -> Vec<String> {
    let members = cluster.members().iter();
    let gateways: Vec<_> = members.map(|member| member.gateway()).collect();
    let left = || -> Result<Vec<String>> {
        let prefix = if end { "locks" } else { NAMES };
        let mut left = first(&gateways, |gateway| gateway.keys(prefix))?;
        if end {
            let leases = first(&gateways, Gateway::leases)?;
            left.extend(leases.iter().map(|lease| format!("lease {lease:x}")));
        }
        Ok(left)
    };
    let start = Instant::now();
    // A retention outlasts its process, under a separate lease.
    let is_left = |what: &String| !what.starts_with("lease ") && !what.starts_with(RETAINED);
    loop {
        let over = start.elapsed().checked_sub(patience);
        match left() {
            Ok(left) if left.is_empty() || over >= Some(RETENTION_LIMIT) => return left,
            Ok(left) if over.is_some() && left.iter().any(is_left) => return left,
            Err(error) if start.elapsed() >= patience + ANSWER_LIMIT => {
                return vec![format!("etcd does not say: {error}")];
            }
            _ => thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Returns the commit of the sources, if this is a repository.
fn commit() -> String {
    let mut git = Command::new("git");
    let said = output(git.args(["describe", "--always", "--dirty"]));
    said.map_or("unknown".to_owned(), |text| text.trim().to_owned())
}

fn version() -> Result<String> {
    let mut command = binary::without_settings(&binary::etcd(), "ETCD_");
    command.arg("--version").env("ETCD_UNSUPPORTED_ARCH", "arm64");
    let text = output(&mut command)?;
    let version = text.lines().next().and_then(|line| line.rsplit(' ').next());
    Ok(version.unwrap_or("unknown").to_owned())
}
