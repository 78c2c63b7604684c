//! Cluster as users have it: three members and the clients, with half a millisecond each way between any two of them.
//!
//! The way is a proxy in front of each client port and each peer port. All three members have their data on the same disk.

use std::time::Duration;

use etcd_locked_devkit::{Cluster as Members, Proxy};

use super::probe::Probe;
use super::trips::Trips;
use super::wires::Wires;
use super::{say, server};
use crate::Result;

const MEMBERS: usize = 3;
/// Each way, as between two zones of a region.
const DELAY: Duration = Duration::from_micros(500);

pub(crate) struct Cluster {
    /// Round trips before any worker began.
    idle: Trips,
    probe: Probe,
    members: Members,
}

impl Cluster {
    pub(crate) fn start() -> Result<Self> {
        let members = Members::start_with(MEMBERS, server::setup())?;
        let mut wires = Wires::open(&members)?;
        delay(&members, DELAY);
        // The time that the proxies take themselves is part of the half millisecond.
        let excess = wires.measure()?.median()?.saturating_sub(DELAY * 2);
        delay(&members, DELAY.saturating_sub(excess / 2));
        let idle = wires.measure()?;
        say::note(format_args!("round trips when idle: {}", idle.shown()?));
        Ok(Self { idle, probe: Probe::start(wires), members })
    }

    pub(crate) fn endpoints(&self) -> String {
        self.members.endpoints().join(",")
    }

    /// Makes another member lead in each round, the same one for all sides. A client of one member is at the leader in one
    /// round of three, and at a follower in the others, as in production; so the median is that of a follower.
    pub(crate) fn lead(&self, round: usize) -> Result<()> {
        self.members.lead(round % MEMBERS)
    }

    /// What the proxies really added.
    pub(crate) fn note(self) -> Result<String> {
        let busy = self.probe.end()?;
        Ok(format!(
            "round trips, half of them and 99 % within: {}, before any worker began; {}, while the workers ran",
            self.idle.shown()?,
            busy.shown()?
        ))
    }
}

fn delay(members: &Members, delay: Duration) {
    let proxies =
        members.members().iter().flat_map(|member| [member.client_proxy(), member.peer_proxy()]);
    proxies.flatten().for_each(|proxy: &Proxy| proxy.delay(delay));
}
