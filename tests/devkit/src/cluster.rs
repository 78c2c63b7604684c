//! Cluster of etcd members, each behind two proxies: one in front of its client port, one in front of its peer port.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::member::{Member, READY, Setup, thrice};
use crate::{Result, until};

/// Cluster whose members are killed when it is dropped.
#[derive(Debug)]
pub struct Cluster {
    setup: Setup,
    members: Vec<Arc<Member>>,
    /// True if authentication is enabled, and the gateways have root's rights.
    asks: bool,
}

/// Name of the user with all rights, and its password.
const ROOT: &str = "root";

impl Cluster {
    /// Starts this many members, and waits until all of them serve.
    pub fn start(size: usize) -> Result<Self> {
        Self::start_with(size, Setup::default())
    }

    /// Starts this many members with this setup each, and waits until all of them serve.
    pub fn start_with(size: usize, setup: Setup) -> Result<Self> {
        let started = thrice(|| Self::attempt(size, &setup));
        started.map_err(|error| format!("a cluster of {size} does not start: {error}"))
    }

    fn attempt(size: usize, setup: &Setup) -> Result<Self> {
        let members = (0..size).map(|_| Member::prepare(setup).map(Arc::new));
        let members = members.collect::<Result<Vec<_>>>()?;
        let initial: BTreeSet<String> = members.iter().map(|member| member.entry()).collect();
        for member in &members {
            member.found(initial.clone(), false);
            member.launch()?;
        }
        members.iter().try_for_each(|member| member.ready())?;
        Ok(Self { setup: setup.clone(), members, asks: false })
    }

    /// Returns the members.
    pub fn members(&self) -> &[Arc<Member>] {
        &self.members
    }

    /// Returns the URLs of all members, each that of the proxy in front of its client port.
    pub fn endpoints(&self) -> Vec<String> {
        let members = self.members.iter();
        members.map(|member| member.endpoint()).collect()
    }

    /// Enables authentication. The gateways of the members get root's rights. Besides root there is one user, who may read and
    /// write the keys that begin with one of these prefixes.
    pub fn enable_auth(&mut self, user: &str, password: &str, prefixes: &[&str]) -> Result<()> {
        let gateway = self.member(0)?.gateway();
        gateway.add_user(ROOT, ROOT, &[])?;
        gateway.add_user(user, password, prefixes)?;
        gateway.enable_auth()?;
        self.asks = true;
        self.members.iter().for_each(|member| member.login(ROOT, ROOT));
        Ok(())
    }

    /// Ends all members, and starts them without data and users, or on a snapshot; waits until all of them serve.
    pub fn begin_anew(&self, snapshot: Option<&Path>) -> Result<()> {
        self.members.iter().try_for_each(|member| member.kill())?;
        let initial: BTreeSet<String> = self.members.iter().map(|member| member.entry()).collect();
        for member in &self.members {
            member.found(initial.clone(), false);
            match snapshot {
                Some(snapshot) => member.restore(snapshot)?,
                None => member.wipe()?,
            }
            if self.asks {
                // An old token would wait until etcd reaches the index at which the token was made.
                member.login(ROOT, ROOT);
            }
            member.launch()?;
        }
        self.members.iter().try_for_each(|member| member.ready())
    }

    /// Returns the index of the leader; if two believe that they lead, the one with the later term.
    pub fn leader(&self) -> Option<usize> {
        let limit = Duration::from_secs(1);
        let term = |member: &Member| {
            let status = member.gateway().limit(limit).status().ok()?;
            (status.leader == status.member).then_some(status.term)
        };
        let members = self.members.iter().enumerate();
        members.filter_map(|(at, member)| Some((term(member)?, at))).max().map(|(_, at)| at)
    }

    /// Waits until a member leads, and returns its index.
    pub fn await_leader(&self) -> Result<usize> {
        let mut leader = None;
        until("a member leads", READY, || {
            leader = self.leader();
            leader.is_some()
        })?;
        leader.ok_or_else(|| "no member leads".to_owned())
    }

    /// Makes the member at this index lead, and waits until it does.
    pub fn lead(&self, at: usize) -> Result<()> {
        let id = self.member(at)?.id().ok_or("a member that has never served")?;
        until("the member leads", READY, || {
            let leader = self.leader();
            if let Some(other) = leader.filter(|leader| *leader != at) {
                // A leader that has just lost the lead refuses; then the next one gets the request.
                let gateway = self.members[other].gateway();
                let _ = gateway.limit(Duration::from_secs(2)).call(
                    "maintenance/transfer-leadership",
                    &json!({ "targetID": id.to_string() }),
                );
            }
            leader == Some(at)
        })
    }

    /// Cuts off the member at this index from all other members, in both directions, until [`heal`](Self::heal).
    pub fn isolate(&self, at: usize) -> Result<()> {
        let cut = |to: &Member, from: &Member| -> Result<()> {
            let proxy = to.peer_proxy().ok_or("a member without a proxy")?;
            proxy.cut_sender(from.id().ok_or("a member that has never served")?);
            Ok(())
        };
        let alone = self.member(at)?;
        let others = self.members.iter().filter(|other| other.id() != alone.id());
        others.into_iter().try_for_each(|other| cut(alone, other).and_then(|()| cut(other, alone)))
    }

    fn member(&self, at: usize) -> Result<&Member> {
        let member = self.members.get(at);
        member.map(|member| &**member).ok_or_else(|| format!("there is no member {at}"))
    }

    /// Ends all faults of all proxies, of peers and clients.
    pub fn heal(&self) {
        for member in &self.members {
            let proxies = [member.client_proxy(), member.peer_proxy()];
            proxies.into_iter().flatten().for_each(|proxy| proxy.heal());
        }
    }

    /// Replaces the member at this index with one that has other addresses.
    ///
    /// etcd requires all members to be connected for five seconds before, unless the setup has `--strict-reconfig-check=false`.
    pub fn replace(&mut self, at: usize) -> Result<()> {
        self.member(at)?;
        let gone = self.members.remove(at);
        let id = gone.id().ok_or("a member that has never served")?;
        self.change("cluster/member/remove", &json!({ "ID": id }))?;
        gone.kill()?;

        let new = Member::prepare(&self.setup)?;
        self.change("cluster/member/add", &json!({ "peerURLs": [new.peer_url()] }))?;
        let initial = self.members.iter().map(|member| member.entry());
        new.found(initial.chain([new.entry()]).collect(), true);
        if self.asks {
            new.login(ROOT, ROOT);
        }
        new.launch()?;
        new.ready()?;
        self.members.insert(at, Arc::new(new));
        Ok(())
    }

    /// Makes one of the members change the cluster. A member without a leader may never respond, so the next one is tried. A
    /// response that the change has already been made counts as success.
    fn change(&self, method: &str, request: &Value) -> Result<()> {
        let made = |error: &str| {
            error.contains("member not found") || error.contains("Peer URLs already exists")
        };
        let start = Instant::now();
        let mut last = "it has no other members".to_owned();
        for member in self.members.iter().cycle() {
            match member.gateway().limit(Duration::from_secs(2)).call(method, request) {
                Ok(_) => return Ok(()),
                Err(error) if made(&error) => return Ok(()),
                Err(error) => last = error,
            }
            // etcd may refuse at once, until all members have been connected for a while.
            std::thread::sleep(Duration::from_millis(50));
            if start.elapsed() > READY || crate::process::interrupted() {
                break;
            }
        }
        Err(format!("the cluster does not change: {last}"))
    }
}
