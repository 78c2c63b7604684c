//! Nemesis: applies the faults of a schedule to the cluster, the workers and the network between them.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use etcd_locked_devkit::{Cluster, Direction, Gateway, KeyValue, Proxy, Result};
use fastrand::Rng;

use crate::checker::faults::REWIND_DETECTION;
use crate::crew::Crew;
use crate::history::{FaultBegun, Taken, What};
use crate::login::{CHANGED, PASSWORD, PREFIXES, USER};
use crate::schedule::{Aim, Fault, Kind, MEMBERS};
use crate::stalls::Asked;
use crate::witness::Witness;
use crate::worker::calls::HOT;

const COMPACTION_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Nemesis {
    pub(crate) crew: Crew,
    pub(crate) cluster: Cluster,
    pub(crate) witness: Witness,
    pub(crate) asked: Asked,
    pub(crate) random: Rng,
    pub(crate) faults: u32,
}

type Heal = Box<dyn FnOnce(&mut Nemesis) -> Result<()>>;

pub(crate) struct Open {
    number: u32,
    kind: Kind,
    heal: Heal,
}

const BOTH: [Direction; 2] = [Direction::Requests, Direction::Answers];

/// Makes the end of a fault from a closure that cannot fail.
fn always(heal: impl FnOnce(&mut Nemesis) + 'static) -> Option<Heal> {
    Some(Box::new(|it| {
        heal(it);
        Ok(())
    }))
}

fn heal(heal: impl FnOnce(&mut Nemesis) -> Result<()> + 'static) -> Option<Heal> {
    Some(Box::new(heal))
}

impl Nemesis {
    /// Begins a fault; `None` if it has no target.
    pub(crate) fn begin(&mut self, Fault { kind, target }: Fault) -> Result<Option<Open>> {
        let number = self.faults;
        self.faults += 1;
        let leader = || self.cluster.await_leader();
        let members = match kind {
            _ if kind.aim() == Aim::Member => vec![target],
            Kind::LeaderKilled | Kind::LeaderFrozen | Kind::LeaderIsolated => vec![leader()?],
            // The leader and another member: the rest cannot serve.
            Kind::QuorumKilled | Kind::QuorumFrozen => {
                let leader = leader()?;
                vec![leader, (leader + 1) % MEMBERS]
            }
            Kind::AllRestarted | Kind::EtcdWiped => (0..MEMBERS).collect(),
            _ => Vec::new(),
        };
        let victim = match kind {
            Kind::LeaseRevoked => self.victim_lease(),
            Kind::KeyDeleted | Kind::KeyOverwritten => self.victim_key(),
            Kind::JunkKey => Some(self.junk_key()),
            _ => Some(Victim::default()),
        };
        let Some(victim) = victim else {
            println!("{kind} finds nothing");
            return Ok(None);
        };
        let of_worker = kind.aim() == Aim::Worker;
        let aim = match &members[..] {
            _ if of_worker => format!("worker {target}"),
            [] if victim.what.is_empty() => "all".to_owned(),
            [] => victim.what.clone(),
            _ => format!("member {members:?}"),
        };
        self.witness.record(What::FaultBegun(FaultBegun {
            fault: number,
            kind,
            target: aim,
            names: victim.names.clone(),
            worker: of_worker.then(|| u32::try_from(target).unwrap_or(u32::MAX)),
            taken: victim.taken.clone(),
        }));
        if let Some(heal) = self.carry_out(number, Fault { kind, target }, members, victim)? {
            return Ok(Some(Open { number, kind, heal }));
        }
        println!("{kind} finds nothing any more");
        self.witness.record(What::FaultMissed { fault: number });
        Ok(None)
    }

    /// Returns the end of the fault; `None` if it has no target.
    fn carry_out(
        &mut self,
        number: u32,
        Fault { kind, target }: Fault,
        members: Vec<usize>,
        Victim { what, lease, .. }: Victim,
    ) -> Result<Option<Heal>> {
        let member = |at: &usize| &self.cluster.members()[*at];
        Ok(match kind {
            Kind::WorkerKilled => {
                self.crew.kill(target)?;
                heal(move |it| it.crew.launch(target))
            }
            Kind::WorkerStopped => {
                self.crew.stop(target)?;
                always(move |it| it.crew.cont(target))
            }
            Kind::WorkerCut => self.between(target, |it| BOTH.map(|way| it.cut(way))),
            Kind::RequestsLost => self.between(target, |it| it.cut(Direction::Requests)),
            Kind::AnswersLost => self.between(target, |it| it.cut(Direction::Answers)),
            Kind::WorkerFrozen => self.between(target, |it| BOTH.map(|way| it.freeze(way))),
            Kind::WorkerReset => self.between(target, Proxy::reset_all),
            Kind::WorkerDelayed => self.between(target, |it| it.delay(Duration::from_millis(80))),
            Kind::WorkerTrickled => self.between(target, |it| it.trickle(4_096)),
            Kind::WorkerHalfOpen => self.between(target, Proxy::half_open),
            Kind::EndpointFrozen => {
                let proxies = self.crew.proxies_to(target);
                proxies.for_each(|it| _ = BOTH.map(|way| it.freeze(way)));
                always(move |it| it.crew.proxies_to(target).for_each(Proxy::heal))
            }
            Kind::EndpointRefused => {
                for proxy in self.crew.proxies_to(target) {
                    proxy.refuse();
                    proxy.reset_all();
                }
                heal(move |it| it.crew.proxies_to(target).try_for_each(Proxy::accept_again))
            }
            Kind::AllReset => {
                for member in 0..MEMBERS {
                    self.crew.proxies_to(member).for_each(Proxy::reset_all);
                }
                always(|_| {})
            }
            Kind::EtcdWiped => {
                self.rewind(number);
                members.iter().try_for_each(|at| member(at).kill())?;
                heal(|it| {
                    it.cluster.begin_anew(None)?;
                    it.asked.are(&it.cluster);
                    it.cluster.enable_auth(USER, PASSWORD, &PREFIXES)
                })
            }
            Kind::EtcdRestored => {
                let snapshot = self.snapshot(target, number)?;
                heal(move |it| {
                    it.rewind(number);
                    it.cluster.begin_anew(Some(&snapshot))?;
                    it.asked.are(&it.cluster);
                    // A file that stays only takes memory.
                    let _ = fs::remove_file(snapshot);
                    Ok(())
                })
            }
            Kind::MemberKilled | Kind::LeaderKilled | Kind::QuorumKilled | Kind::AllRestarted => {
                members.iter().try_for_each(|at| member(at).kill())?;
                heal(move |it| {
                    let all = it.cluster.members();
                    members.iter().try_for_each(|at| all[*at].launch())?;
                    members.iter().try_for_each(|at| all[*at].ready())
                })
            }
            Kind::MemberFrozen | Kind::LeaderFrozen | Kind::QuorumFrozen => {
                members.iter().try_for_each(|at| member(at).stop())?;
                heal(move |it| {
                    let all = it.cluster.members();
                    members.iter().try_for_each(|at| all[*at].cont())
                })
            }
            Kind::MemberIsolated | Kind::LeaderIsolated => {
                members.iter().try_for_each(|at| self.cluster.isolate(*at))?;
                always(|it| it.cluster.heal())
            }
            Kind::MemberReplaced => {
                self.cluster.replace(target)?;
                self.asked.are(&self.cluster);
                let new = self.cluster.members()[target].direct();
                self.crew.proxies_to(target).for_each(|proxy| proxy.lead_to(new.to_string()));
                always(|_| {})
            }
            Kind::LeaseRevoked => match self.ask(|gateway| gateway.revoke(lease)) {
                Err(error) if error.contains("lease not found") => None,
                revoked => revoked.map(|()| always(|_| {}))?,
            },
            Kind::KeyDeleted => match self.ask(|gateway| gateway.delete(&what))? {
                true => always(|_| {}),
                false => None,
            },
            Kind::KeyOverwritten | Kind::JunkKey => {
                self.ask(|gateway| gateway.put(&what, "an operator was here"))?;
                heal(move |it| it.ask(|gateway| gateway.delete_without_lease(&what)))
            }
            Kind::Compacted => {
                let storm = storm(self.gateways());
                always(move |_| drop(storm))
            }
            Kind::NoSpace => {
                self.ask(|gateway| gateway.no_space(true))?;
                heal(|it| it.ask(|gateway| gateway.no_space(false)))
            }
            Kind::RoleTaken => {
                self.ask(|gateway| gateway.revoke_role(USER))?;
                heal(|it| it.ask(|gateway| gateway.grant_role(USER)))
            }
            Kind::PasswordChanged => {
                self.ask(|gateway| gateway.change_password(USER, CHANGED))?;
                heal(|it| it.ask(|gateway| gateway.change_password(USER, PASSWORD)))
            }
        })
    }

    /// Disturbs the network between a worker and all members.
    fn between<T>(&self, worker: usize, disturb: impl Fn(&Proxy) -> T) -> Option<Heal> {
        self.crew.proxies(worker).iter().for_each(|proxy| _ = disturb(proxy));
        always(move |it| it.crew.proxies(worker).iter().for_each(Proxy::heal))
    }

    /// Records that etcd now loses its history, and tokens begin again.
    fn rewind(&self, fault: u32) {
        self.witness.judge_writes(false);
        self.witness.record(What::Rewound { fault });
    }

    pub(crate) fn heal(&mut self, Open { number: fault, kind, heal }: Open) -> Result<()> {
        self.witness.record(What::FaultEnding { fault });
        heal(self)?;
        self.witness.record(What::FaultHealed { fault });
        if matches!(kind, Kind::EtcdWiped | Kind::EtcdRestored) {
            // Until then earlier holders may write, whose tokens are higher.
            thread::sleep(Duration::from_nanos(REWIND_DETECTION));
            self.witness.judge_writes(true);
        }
        Ok(())
    }

    fn gateways(&self) -> Vec<Gateway> {
        let members = self.cluster.members().iter();
        members.map(|member| member.gateway().limit(Duration::from_secs(2))).collect()
    }

    /// Sends a request to one member after another, until one responds.
    fn ask<T>(&self, ask: impl Fn(&Gateway) -> Result<T>) -> Result<T> {
        first(&self.gateways(), ask)
    }

    /// Saves a snapshot of this member, or of the next one that can give one.
    fn snapshot(&self, from: usize, number: u32) -> Result<PathBuf> {
        let members = self.cluster.members();
        first(members.iter().cycle().skip(from).take(MEMBERS), |member| {
            let file = member.file(&format!("snapshot-{number}"));
            member.snapshot(&file).map(|()| file)
        })
    }

    /// Chooses a contender's key at random; `None` if there is none.
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

    /// Makes a key below a hot name that no client of ours would put.
    fn junk_key(&mut self) -> Victim {
        let name = format!("hot/{}", self.random.u64(0..HOT));
        Victim { what: format!("locks/{name}/junk"), lease: 0, names: vec![name], taken: None }
    }

    /// Chooses the lease of a contender's key, with all names below which it has keys.
    fn victim_lease(&mut self) -> Option<Victim> {
        let Victim { lease, taken, .. } = self.victim_key()?;
        let mut keys = self.ask(|gateway| gateway.below("locks/")).ok()?;
        keys.retain(|key| key.lease == lease);
        let names = keys.iter().filter_map(|key| name(&key.key)).collect();
        let what = format!("lease {lease:x}");
        // Any of its keys may be the oldest of its name.
        let taken = taken.map(|taken| Taken { older: 0, ..taken });
        Some(Victim { what, lease, names, taken })
    }
}

/// Key or lease that an operator takes away, or a key that an operator puts.
#[derive(Debug, Default)]
struct Victim {
    what: String,
    lease: i64,
    names: Vec<String>,
    /// `None` for a key that is put.
    taken: Option<Taken>,
}

/// Returns the worker that a holder record names as its service.
fn worker(record: &str) -> Option<usize> {
    let record: serde_json::Value = serde_json::from_str(record).ok()?;
    record["service"].as_str()?.strip_prefix("worker-")?.parse().ok()
}

/// Returns the name in a contender's key.
fn name(key: &str) -> Option<String> {
    let (name, _) = key.strip_prefix("locks/")?.rsplit_once('/')?;
    Some(name.to_owned())
}

/// Sends a request to several members in turn, until one responds.
pub(crate) fn first<M, T>(
    members: impl IntoIterator<Item = M>,
    ask: impl Fn(M) -> Result<T>,
) -> Result<T> {
    let mut last = Err("no member".to_owned());
    for member in members {
        last = ask(member);
        if last.is_ok() {
            break;
        }
    }
    last
}

/// Compacts repeatedly, in a separate thread, until the returned value is dropped.
fn storm(gateways: Vec<Gateway>) -> Arc<()> {
    let storm = Arc::new(());
    let lasts = Arc::downgrade(&storm);
    thread::spawn(move || {
        while lasts.upgrade().is_some() {
            // This fails for a revision that is already compacted.
            let _ = first(&gateways, |gateway| gateway.compact(gateway.status()?.revision));
            thread::sleep(COMPACTION_PAUSE);
        }
    });
    storm
}

#[cfg(test)]
mod tests {
    use super::{name, worker};

    #[test]
    fn a_key_says_its_name_and_its_record_the_worker() {
        assert_eq!(name("locks/hot/3/694d8f"), Some("hot/3".to_owned()));
        assert_eq!(name("locks/seat/1/694d8f.p2"), Some("seat/1".to_owned()));
        assert_eq!(name("locks%s/694d8f"), None);
        assert_eq!(worker(r#"{"host":"h","pid":7,"service":"worker-2"}"#), Some(2));
        assert_eq!(worker("an operator was here"), None);
    }
}
