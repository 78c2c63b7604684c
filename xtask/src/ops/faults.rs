//! Faults: each brings about its alerts, and no other.

use std::fmt;
use std::time::Duration;

use etcd_locked_devkit::{Member, until};

use super::prometheus::Firing;
use super::shop::{Clerk, Customers};
use super::stage::Stage;
use crate::{Result, say};

/// How long an alert may take to fire, and to end after its fault.
const PATIENCE: Duration = Duration::from_secs(90);

/// The order whose lock is taken away, and the one that many wait for.
const TAKEN: u64 = 1;
const WANTED: u64 = 2;
/// How many wait for it: more than the alert's limit.
const CROWD: usize = 30;

/// Fault that is injected.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    KeyDeleted,
    LongHolder,
    NoSpace,
    EtcdStopped,
    EtcdRestored,
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::KeyDeleted => "an operator deletes the key of a lock",
            Self::LongHolder => "a process holds a lock for long, and many wait for it",
            Self::NoSpace => "etcd's database is full",
            Self::EtcdStopped => "etcd stops (SIGSTOP)",
            Self::EtcdRestored => "etcd is restored from a snapshot",
        })
    }
}

impl Fault {
    pub(super) const ALL: [Self; 5] =
        [Self::KeyDeleted, Self::LongHolder, Self::NoSpace, Self::EtcdStopped, Self::EtcdRestored];

    /// Returns the alerts that it must bring about, each with a label that it must have.
    pub(super) fn fires(self) -> &'static [(&'static str, &'static str)] {
        const ORDERS: &str = r#""lock":"orders/<id>""#;
        match self {
            Self::KeyDeleted => &[("EtcdLockedLocksLost", r#""cause":"deleted""#)],
            Self::LongHolder => {
                &[("EtcdLockedWaitsTooLong", ORDERS), ("EtcdLockedWaitersStay", ORDERS)]
            }
            Self::NoSpace => &[("EtcdLockedRefusedExchanges", r#""kind":"write""#)],
            Self::EtcdStopped => &[
                ("EtcdLockedEtcdLost", r#""severity":"page""#),
                ("EtcdLockedLeaseNearlyOver", r#""instance":"127.0.0.1:"#),
                ("EtcdLockedLocksLost", r#""cause":"expired""#),
            ],
            Self::EtcdRestored => &[("EtcdLockedHistoryLost", r#""severity":"page""#)],
        }
    }

    /// Returns the alerts that it may bring about: etcd may be away for longer than the shortened time.
    fn may_fire(self) -> &'static [&'static str] {
        match self {
            Self::EtcdRestored => &["EtcdLockedEtcdLost"],
            _ => &[],
        }
    }

    /// Injects it while all is well, waits for its alerts, ends it, and waits until all is well again.
    pub(super) fn play(self, stage: &Stage, customers: &Customers) -> Result<()> {
        self.wait(stage, "no alert fires", |firing| firing.is_empty())?;
        let injected = self.inject(stage)?;
        self.wait(stage, "its alerts fire", |firing| {
            let fires = |(name, label): &(&str, &str)| {
                let mut firing = firing.iter();
                firing.any(|alert| alert.name == *name && alert.text.contains(label))
            };
            self.fires().iter().all(fires)
        })?;
        for (name, _) in self.fires() {
            say::note(format_args!("fires: {name}"));
        }
        injected.end(stage)?;
        self.wait(stage, "its alerts end", |firing| firing.is_empty())?;
        let served = customers.served();
        until("customers are served again", PATIENCE, || customers.served() > served)
    }

    /// Waits for a state of the alerts that fire. One that has nothing to do with the fault is an error.
    fn wait(self, stage: &Stage, what: &str, reached: impl Fn(&[Firing]) -> bool) -> Result<()> {
        let mut wrong = None;
        let mut last = Vec::new();
        let waited = until(what, PATIENCE, || {
            let firing = match stage.prometheus.firing() {
                Ok(firing) => firing,
                Err(error) => {
                    wrong = Some(error);
                    return true;
                }
            };
            wrong = firing.iter().find_map(|alert| {
                let name = &&*alert.name;
                let must = self.fires().iter().any(|(fires, _)| fires == name);
                if !must && !self.may_fire().contains(name) {
                    return Some(format!("an alert fires that should not: {}", alert.text));
                }
                let unwritten = alert.text.contains("<no value>") || alert.text.contains("<error");
                unwritten.then(|| format!("an alert's text has a gap: {}", alert.text))
            });
            last = firing;
            wrong.is_some() || reached(&last)
        });
        match wrong {
            Some(error) => Err(format!("{self}: {error}")),
            None => waited.map_err(|error| format!("{self}: {error}; firing: {last:?}")),
        }
    }

    fn inject(self, stage: &Stage) -> Result<Injected> {
        let etcd = member(stage)?;
        Ok(match self {
            Self::KeyDeleted => {
                let clerk = holds(stage, TAKEN)?;
                for key in etcd.gateway().keys(&below(TAKEN))? {
                    etcd.gateway().delete(&key)?;
                }
                Injected::Clerk(clerk)
            }
            Self::LongHolder => {
                let clerk = holds(stage, WANTED)?;
                let crowd = Customers::send(&[&stage.first], CROWD, Some(WANTED));
                Injected::Crowd(clerk, crowd)
            }
            Self::NoSpace => {
                etcd.gateway().no_space(true)?;
                Injected::NoSpace
            }
            Self::EtcdStopped => {
                let clerk = holds(stage, TAKEN)?;
                etcd.stop()?;
                Injected::Stopped(clerk)
            }
            Self::EtcdRestored => {
                stage.etcd.begin_anew(Some(&stage.snapshot()))?;
                Injected::Nothing
            }
        })
    }
}

/// What ends a fault.
#[derive(Debug)]
enum Injected {
    Nothing,
    Clerk(Clerk),
    Crowd(Clerk, Customers),
    NoSpace,
    Stopped(Clerk),
}

impl Injected {
    fn end(self, stage: &Stage) -> Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Clerk(clerk) => {
                drop(clerk);
                Ok(())
            }
            Self::Crowd(clerk, crowd) => {
                drop(clerk);
                drop(crowd);
                Ok(())
            }
            Self::NoSpace => member(stage)?.gateway().no_space(false),
            Self::Stopped(clerk) => {
                drop(clerk);
                member(stage)?.cont()
            }
        }
    }
}

fn member(stage: &Stage) -> Result<&Member> {
    let mut members = stage.etcd.members().iter();
    let first = members.next().ok_or("no etcd")?;
    Ok(first)
}

fn below(order: u64) -> String {
    format!("locks/orders/{order}/")
}

/// Has the second process hold an order's lock, which is in etcd on return.
fn holds(stage: &Stage, order: u64) -> Result<Clerk> {
    until("an order", PATIENCE, || stage.second.order(order) == 200)?;
    // Not before the order's own lock is given back, because the clerk does not wait.
    let gateway = member(stage)?.gateway();
    let empty = || gateway.keys(&below(order)).is_ok_and(|keys| keys.is_empty());
    until("the end of an order", PATIENCE, empty)?;
    let clerk = stage.second.invoice(order)?;
    until("a lock held for long", PATIENCE, || !empty())?;
    Ok(clerk)
}
