//! Nemesis: carries a schedule out on the cluster, the workers and the network between them.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use etcd_locked_devkit::{Cluster, Direction, Gateway, KeyValue, Result};
use fastrand::Rng;

use crate::checker::faults::REWIND_DETECTION;
use crate::crew::Crew;
use crate::history::{Taken, What};
use crate::login::{CHANGED, PASSWORD, PREFIXES, USER};
use crate::options::word;
use crate::schedule::{Fault, Kind};
use crate::stalls::Asked;
use crate::witness::Witness;
use crate::worker::calls::HOT;

/// The pause between two compactions of a storm.
const COMPACTION_PAUSE: Duration = Duration::from_millis(100);

/// Who makes the faults.
#[derive(Debug)]
pub(crate) struct Nemesis<'a> {
    pub(crate) cluster: &'a mut Cluster,
    pub(crate) crew: &'a mut Crew,
    pub(crate) witness: &'a Witness,
    asked: Asked,
    random: Rng,
    faults: u32,
}

/// A fault that is there, and what is needed to heal it.
#[derive(Debug)]
pub(crate) struct Open {
    number: u32,
    fault: Fault,
    members: Vec<usize>,
    storm: Option<Storm>,
    /// A key without a lease.
    key: Option<String>,
    /// What etcd is to be restored from.
    snapshot: Option<PathBuf>,
}

impl<'a> Nemesis<'a> {
    pub(crate) fn new(
        cluster: &'a mut Cluster,
        crew: &'a mut Crew,
        witness: &'a Witness,
        asked: Asked,
        seed: u64,
    ) -> Self {
        Self { asked, cluster, crew, witness, random: Rng::with_seed(seed), faults: 0 }
    }

    /// Begins a fault; `None` if it finds nothing to disturb.
    pub(crate) fn begin(&mut self, fault: Fault) -> Result<Option<Open>> {
        let number = self.faults;
        self.faults += 1;
        let mut open =
            Open { number, fault, members: Vec::new(), storm: None, key: None, snapshot: None };
        let Fault { kind, target } = fault;
        let members = self.cluster.members().len();
        let leader = || self.cluster.await_leader();
        open.members = match kind {
            Kind::EndpointFrozen
            | Kind::EndpointRefused
            | Kind::MemberKilled
            | Kind::MemberFrozen
            | Kind::MemberIsolated
            | Kind::MemberReplaced => vec![target],
            Kind::LeaderKilled | Kind::LeaderFrozen | Kind::LeaderIsolated => vec![leader()?],
            // The leader and another: nothing is left that could serve.
            Kind::QuorumKilled | Kind::QuorumFrozen => {
                let leader = leader()?;
                vec![leader, (leader + 1) % members]
            }
            Kind::AllRestarted | Kind::EtcdWiped => (0..members).collect(),
            _ => Vec::new(),
        };
        let victim = match kind {
            Kind::LeaseRevoked => self.victim_lease(),
            Kind::KeyDeleted | Kind::KeyOverwritten => self.victim_key(),
            Kind::JunkKey => Some(self.junk_key()),
            _ => None,
        };
        let wants_victim = [Kind::LeaseRevoked, Kind::KeyDeleted, Kind::KeyOverwritten];
        if victim.is_none() && wants_victim.contains(&kind) {
            println!("{} finds nothing", word(kind));
            return Ok(None);
        }
        let aim = match &victim {
            Some(victim) => victim.what.clone(),
            _ if kind.is_of_worker() => format!("worker {target}"),
            _ if open.members.is_empty() => "all".to_owned(),
            _ => format!("member {:?}", open.members),
        };
        self.witness.record(What::FaultBegun {
            fault: number,
            kind,
            target: aim,
            names: victim.as_ref().map_or(Vec::new(), |victim| victim.names.clone()),
            worker: kind.is_of_worker().then(|| slot(target)),
            taken: victim.as_ref().and_then(|victim| victim.taken.clone()),
        });
        if self.carry_out(&mut open, victim)? {
            return Ok(Some(open));
        }
        println!("{} finds nothing any more", word(kind));
        self.witness.record(What::FaultMissed { fault: number });
        Ok(None)
    }

    /// Tells whether it has found what it is to disturb.
    fn carry_out(&mut self, open: &mut Open, victim: Option<Victim>) -> Result<bool> {
        let Fault { kind, target } = open.fault;
        let member = |at: &usize| &self.cluster.members()[*at];
        let both = [Direction::Requests, Direction::Answers];
        match kind {
            Kind::WorkerKilled => self.crew.kill(target)?,
            Kind::WorkerStopped => self.crew.stop(target)?,
            Kind::WorkerCut => {
                for proxy in self.crew.proxies(target) {
                    both.into_iter().for_each(|direction| proxy.cut(direction));
                }
            }
            Kind::RequestsLost => {
                self.crew.proxies(target).iter().for_each(|proxy| proxy.cut(Direction::Requests))
            }
            Kind::AnswersLost => {
                self.crew.proxies(target).iter().for_each(|proxy| proxy.cut(Direction::Answers))
            }
            Kind::WorkerFrozen => {
                for proxy in self.crew.proxies(target) {
                    both.into_iter().for_each(|direction| proxy.freeze(direction));
                }
            }
            Kind::WorkerReset => {
                self.crew.proxies(target).iter().for_each(|proxy| proxy.reset_all())
            }
            Kind::WorkerDelayed => {
                let delay = Duration::from_millis(80);
                self.crew.proxies(target).iter().for_each(|proxy| proxy.delay(delay));
            }
            Kind::WorkerTrickled => {
                self.crew.proxies(target).iter().for_each(|proxy| proxy.trickle(4_096))
            }
            Kind::WorkerHalfOpen => {
                self.crew.proxies(target).iter().for_each(|proxy| proxy.half_open())
            }
            Kind::EndpointFrozen => {
                for proxy in self.crew.proxies_to(target) {
                    both.into_iter().for_each(|direction| proxy.freeze(direction));
                }
            }
            Kind::EndpointRefused => {
                for proxy in self.crew.proxies_to(target) {
                    proxy.refuse();
                    proxy.reset_all();
                }
            }
            Kind::AllReset => {
                for member in 0..self.cluster.members().len() {
                    self.crew.proxies_to(member).for_each(|proxy| proxy.reset_all());
                }
            }
            Kind::EtcdWiped => {
                self.rewind(open.number);
                open.members.iter().try_for_each(|at| member(at).kill())?;
            }
            Kind::EtcdRestored => {
                open.snapshot = Some(self.snapshot(target, open.number)?);
            }
            Kind::MemberKilled | Kind::LeaderKilled | Kind::QuorumKilled | Kind::AllRestarted => {
                open.members.iter().try_for_each(|at| member(at).kill())?;
            }
            Kind::MemberFrozen | Kind::LeaderFrozen | Kind::QuorumFrozen => {
                open.members.iter().try_for_each(|at| member(at).stop())?;
            }
            Kind::MemberIsolated | Kind::LeaderIsolated => {
                open.members.iter().try_for_each(|at| self.cluster.isolate(*at))?;
            }
            Kind::MemberReplaced => {
                self.cluster.replace(target)?;
                self.asked.are(self.cluster);
                let new = self.cluster.members()[target].direct();
                self.crew.proxies_to(target).for_each(|proxy| proxy.lead_to(new.to_string()));
            }
            Kind::LeaseRevoked => {
                if let Some(Victim { lease, .. }) = victim {
                    return match self.ask(|gateway| gateway.revoke(lease)) {
                        Err(error) if error.contains("lease not found") => Ok(false),
                        revoked => revoked.map(|()| true),
                    };
                }
            }
            Kind::KeyDeleted => {
                if let Some(Victim { what, .. }) = victim {
                    return self.ask(|gateway| gateway.delete(&what));
                }
            }
            Kind::KeyOverwritten | Kind::JunkKey => {
                if let Some(Victim { what, .. }) = victim {
                    self.ask(|gateway| gateway.put(&what, "an operator was here"))?;
                    open.key = Some(what);
                }
            }
            Kind::Compacted => open.storm = Some(Storm::over(self.gateways())),
            Kind::NoSpace => self.ask(|gateway| gateway.no_space(true))?,
            Kind::RoleTaken => self.ask(|gateway| gateway.revoke_role(USER))?,
            Kind::PasswordChanged => self.ask(|gateway| gateway.change_password(USER, CHANGED))?,
        }
        Ok(true)
    }

    /// From here on etcd loses what it knew, and tokens begin anew.
    fn rewind(&self, fault: u32) {
        self.witness.judge_writes(false);
        self.witness.record(What::Rewound { fault });
    }

    /// Ends a fault.
    pub(crate) fn heal(&mut self, mut open: Open) -> Result<()> {
        let Fault { kind, target } = open.fault;
        let member = |at: &usize| &self.cluster.members()[*at];
        self.witness.record(What::FaultEnding { fault: open.number });
        match kind {
            Kind::WorkerKilled => self.crew.launch(target)?,
            Kind::WorkerStopped => self.crew.cont(target),
            Kind::WorkerCut
            | Kind::RequestsLost
            | Kind::AnswersLost
            | Kind::WorkerFrozen
            | Kind::WorkerDelayed
            | Kind::WorkerTrickled
            | Kind::WorkerHalfOpen => {
                self.crew.proxies(target).iter().for_each(|proxy| proxy.heal());
            }
            Kind::EndpointFrozen => self.crew.proxies_to(target).for_each(|proxy| proxy.heal()),
            Kind::EndpointRefused => {
                self.crew.proxies_to(target).try_for_each(|proxy| proxy.accept_again())?
            }
            Kind::EtcdWiped | Kind::EtcdRestored => {
                if kind == Kind::EtcdRestored {
                    self.rewind(open.number);
                }
                self.cluster.begin_anew(open.snapshot.as_deref())?;
                self.asked.are(self.cluster);
                if let Some(snapshot) = open.snapshot.take() {
                    // One that stays takes memory only.
                    let _ = fs::remove_file(snapshot);
                }
                if kind == Kind::EtcdWiped {
                    self.cluster.enable_auth(USER, PASSWORD, &PREFIXES)?;
                }
            }
            Kind::MemberKilled | Kind::LeaderKilled | Kind::QuorumKilled | Kind::AllRestarted => {
                open.members.iter().try_for_each(|at| member(at).launch())?;
                open.members.iter().try_for_each(|at| member(at).ready())?;
            }
            Kind::MemberFrozen | Kind::LeaderFrozen | Kind::QuorumFrozen => {
                open.members.iter().try_for_each(|at| member(at).cont())?;
            }
            Kind::MemberIsolated | Kind::LeaderIsolated => self.cluster.heal(),
            Kind::KeyOverwritten | Kind::JunkKey => {
                if let Some(key) = open.key.take() {
                    self.ask(|gateway| gateway.delete_without_lease(&key))?;
                }
            }
            Kind::Compacted => drop(open.storm.take()),
            Kind::NoSpace => self.ask(|gateway| gateway.no_space(false))?,
            Kind::RoleTaken => self.ask(|gateway| gateway.grant_role(USER))?,
            Kind::PasswordChanged => self.ask(|gateway| gateway.change_password(USER, PASSWORD))?,
            Kind::WorkerReset
            | Kind::AllReset
            | Kind::MemberReplaced
            | Kind::LeaseRevoked
            | Kind::KeyDeleted => {}
        }
        self.witness.record(What::FaultHealed { fault: open.number });
        if matches!(kind, Kind::EtcdWiped | Kind::EtcdRestored) {
            // Until then holders of before may write, whose tokens are higher.
            thread::sleep(Duration::from_nanos(REWIND_DETECTION));
            self.witness.judge_writes(true);
        }
        Ok(())
    }

    fn gateways(&self) -> Vec<Gateway> {
        let members = self.cluster.members().iter();
        members.map(|member| member.gateway().limit(Duration::from_secs(2))).collect()
    }

    /// Asks the members one after the other, until one answers.
    fn ask<T>(&self, ask: impl Fn(&Gateway) -> Result<T>) -> Result<T> {
        first(&self.gateways(), ask)
    }

    /// A snapshot of this member, or of the next one that gives one.
    fn snapshot(&self, from: usize, number: u32) -> Result<PathBuf> {
        let members = self.cluster.members();
        let mut last = Err("no member".to_owned());
        for member in members.iter().cycle().skip(from).take(members.len()) {
            let file = member.file(&format!("snapshot-{number}"));
            last = member.snapshot(&file).map(|()| file);
            if last.is_ok() {
                break;
            }
        }
        last
    }

    /// A contender's key, chosen at random; nothing if there is none.
    fn victim_key(&mut self) -> Option<Victim> {
        let mut keys = self.ask(|gateway| gateway.below("locks/")).ok()?;
        keys.retain(|key| key.lease != 0);
        let key = keys.get(self.random.usize(0..keys.len().max(1)))?;
        let of = name(&key.key)?;
        let older = |other: &&KeyValue| {
            other.created < key.created && name(&other.key).as_ref() == Some(&of)
        };
        let taken = Taken {
            owner: worker(&key.value).and_then(|slot| self.crew.number(slot)),
            older: keys.iter().filter(older).count(),
        };
        Some(Victim {
            what: key.key.clone(),
            lease: key.lease,
            names: vec![of],
            taken: Some(taken),
        })
    }

    /// A key below a hot name that no client of ours would put.
    fn junk_key(&mut self) -> Victim {
        let name = format!("hot/{}", self.random.u64(0..HOT));
        Victim { what: format!("locks/{name}/junk"), lease: 0, names: vec![name], taken: None }
    }

    /// The lease of such a key, with all names below which it has keys.
    fn victim_lease(&mut self) -> Option<Victim> {
        let Victim { lease, taken, .. } = self.victim_key()?;
        let keys = self.ask(|gateway| gateway.leased("locks/")).ok()?;
        let of_lease = keys.iter().filter(|(_, of)| *of == lease);
        let names = of_lease.filter_map(|(key, _)| name(key)).collect();
        let what = format!("lease {lease:x}");
        // Of all its keys some may be the oldest.
        let taken = taken.map(|taken| Taken { older: 0, ..taken });
        Some(Victim { what, lease, names, taken })
    }
}

/// What an operator takes away, or puts in the way.
#[derive(Debug)]
struct Victim {
    what: String,
    lease: i64,
    names: Vec<String>,
    /// `None` for a key that is put.
    taken: Option<Taken>,
}

/// The worker that a holder record names as its service.
fn worker(record: &str) -> Option<usize> {
    let record: serde_json::Value = serde_json::from_str(record).ok()?;
    record["service"].as_str()?.strip_prefix("worker-")?.parse().ok()
}

/// The number of a slot, as histories have it.
fn slot(slot: usize) -> u32 {
    u32::try_from(slot).unwrap_or(u32::MAX)
}

/// The name in a contender's key.
fn name(key: &str) -> Option<String> {
    let (name, _) = key.strip_prefix("locks/")?.rsplit_once('/')?;
    Some(name.to_owned())
}

/// Asks several members, until one answers.
pub(crate) fn first<T>(gateways: &[Gateway], ask: impl Fn(&Gateway) -> Result<T>) -> Result<T> {
    let mut last = Err("no member".to_owned());
    for gateway in gateways {
        last = ask(gateway);
        if last.is_ok() {
            break;
        }
    }
    last
}

/// A compaction storm; dropped, it is over.
#[derive(Debug)]
struct Storm {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Storm {
    fn over(gateways: Vec<Gateway>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        let thread = thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                // It fails for a revision that is compacted already.
                let _ = first(&gateways, |gateway| gateway.compact(gateway.status()?.revision));
                thread::sleep(COMPACTION_PAUSE);
            }
        });
        let thread = Some(thread);
        Self { over, thread }
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{name, worker};

    #[test]
    fn a_key_says_its_name() {
        assert_eq!(name("locks/hot/3/694d8f"), Some("hot/3".to_owned()));
        assert_eq!(name("locks/seat/1/694d8f.p2"), Some("seat/1".to_owned()));
        assert_eq!(name("locks/long/1/aetcd"), Some("long/1".to_owned()));
        assert_eq!(name("locks%s/694d8f"), None);
    }

    #[test]
    fn a_record_says_its_worker() {
        let record = r#"{"host":"h","pid":7,"service":"worker-2"}"#;
        assert_eq!(worker(record), Some(2));
        assert_eq!(worker("an operator was here"), None);
    }
}
