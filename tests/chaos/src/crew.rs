//! Crew: the worker processes, each with the processes that it starts, behind separate proxies to every member.

use std::process::Stdio;
use std::time::Duration;

use etcd_locked_devkit::{Cluster, Process, Proxy, Result, binary};
use std::io::Write;

use crate::clock::now;
use crate::history::What;
use crate::login;
use crate::options::{Options, word};
use crate::schedule::CREW;
use crate::witness::Witness;

/// How long a worker may take to end when it is told to: its calls, their bodies, and the shutdown.
const DRAIN_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Crew {
    witness: Witness,
    options: Options,
    started: u32,
    /// When a worker was last killed or ended by itself; 0 if never.
    pub(crate) died: u64,
    slots: Vec<Slot>,
}

/// Slot for a worker, which may be killed and started again.
#[derive(Debug)]
struct Slot {
    proxies: Vec<Proxy>,
    /// Number of the process, and the process.
    worker: Option<(u32, Process)>,
}

impl Crew {
    pub(crate) fn start(cluster: &Cluster, witness: &Witness, options: &Options) -> Result<Self> {
        let slot = || {
            let members = cluster.members().iter();
            let proxies = members.map(|member| Proxy::start(member.direct().to_string()));
            let proxies = proxies.collect::<Result<_>>()?;
            let worker = None;
            Ok(Slot { proxies, worker })
        };
        let mut crew = Self {
            witness: witness.clone(),
            options: options.clone(),
            started: 0,
            died: 0,
            slots: (0..CREW).map(|_| slot()).collect::<Result<_>>()?,
        };
        (0..CREW).try_for_each(|slot| crew.launch(slot))?;
        Ok(crew)
    }

    pub(crate) fn launch(&mut self, slot: usize) -> Result<()> {
        let number = self.started;
        self.started += 1;
        let endpoints: Vec<String> = self.slots[slot].proxies.iter().map(Proxy::endpoint).collect();
        let Options { program, mix, who, seed, .. } = &self.options;
        let program = program.clone().map_or_else(std::env::current_exe, Ok);
        let program = program.map_err(|error| error.to_string())?;
        let mut command = binary::without_settings(&program, "ETCD");
        command
            .args(["worker", &self.witness.address.to_string(), &number.to_string()])
            .arg((seed.wrapping_mul(1_000) + u64::from(number)).to_string())
            .args([mix.name, &word(*who)])
            .env("ETCD_LOCKED_ENDPOINTS", endpoints.join(","))
            .env("ETCD_LOCKED_SERVICE", format!("worker-{slot}"))
            .env("ETCD_LOCKED_USER", login::text())
            .env("ETCDCTL_BIN", binary::etcdctl())
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let process = Process::lead("a worker", &mut command)?;
        let slot_number = u32::try_from(slot).unwrap_or(u32::MAX);
        self.witness.record(What::Started { process: number, slot: slot_number });
        self.slots[slot].worker = Some((number, process));
        Ok(())
    }

    /// Returns the proxies between a worker and the members.
    pub(crate) fn proxies(&self, slot: usize) -> &[Proxy] {
        &self.slots[slot].proxies
    }

    /// Returns the proxies between all workers and a member.
    pub(crate) fn proxies_to(&self, member: usize) -> impl Iterator<Item = &Proxy> {
        self.slots.iter().map(move |slot| &slot.proxies[member])
    }

    /// Returns the number of the process in a slot; `None` after it was killed.
    pub(crate) fn number(&self, slot: usize) -> Option<u32> {
        self.slots.get(slot)?.worker.as_ref().map(|(number, _)| *number)
    }

    pub(crate) fn numbers(&self) -> Vec<u32> {
        (0..self.slots.len()).filter_map(|slot| self.number(slot)).collect()
    }

    /// Sends SIGKILL. A worker that had already ended counts as one that ended by itself.
    pub(crate) fn kill(&mut self, slot: usize) -> Result<()> {
        if let Some((process, mut worker)) = self.slots[slot].worker.take() {
            self.witness.record(match worker.ended()? {
                None => What::Killed { process },
                Some(_) => What::Exited { process, well: false, hung: false },
            });
            worker.kill()?;
            self.died = now();
        }
        Ok(())
    }

    /// Sends SIGSTOP, and returns after every thread of the worker has stopped.
    pub(crate) fn stop(&mut self, slot: usize) -> Result<()> {
        let Some((process, worker)) = &mut self.slots[slot].worker else {
            return Ok(());
        };
        self.witness.record(What::Stopped { process: *process });
        worker.stop()
    }

    pub(crate) fn cont(&mut self, slot: usize) {
        if let Some((process, worker)) = &mut self.slots[slot].worker {
            self.witness.record(What::Continued { process: *process });
            worker.cont();
        }
    }

    /// Notices workers that have ended by themselves, and replaces them.
    pub(crate) fn tend(&mut self) -> Result<()> {
        for slot in 0..self.slots.len() {
            if let Some((process, worker)) = &mut self.slots[slot].worker
                && worker.ended()?.is_some()
            {
                let process = *process;
                self.witness.record(What::Exited { process, well: false, hung: false });
                self.died = now();
                self.launch(slot)?;
            }
        }
        Ok(())
    }

    /// Writes a line to all workers. After the first they stop making calls, after the second they end.
    pub(crate) fn tell(&mut self, line: &str) {
        let workers = self.slots.iter_mut().filter_map(|slot| slot.worker.as_mut());
        for stdin in workers.filter_map(|(_, worker)| worker.streams().stdin.as_mut()) {
            // A worker that has ended is noticed at the end.
            let _ = writeln!(stdin, "{line}");
        }
    }

    /// Tells all workers to end, and waits for that; returns true if all ended well.
    pub(crate) fn end(&mut self) -> bool {
        self.tell("end");
        let mut clean = true;
        for (process, mut worker) in self.slots.iter_mut().filter_map(|slot| slot.worker.take()) {
            let ended = worker.wait(DRAIN_LIMIT);
            let hung = ended.is_err();
            let well = ended.is_ok_and(|status| status.success());
            clean &= well;
            self.witness.record(What::Exited { process, well, hung });
        }
        clean
    }
}
