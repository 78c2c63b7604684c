//! Scene that is worth looking at: services that hold locks and wait for them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use etcd_locked_devkit::binary::without_settings;
use etcd_locked_devkit::{Cluster, Gateway, Process, until};
use tempfile::TempDir;

use crate::Result;
use crate::etcd::Etcd;
use crate::ops::shop::{ARTICLE, Clerk, Customers, Shop};

/// The name with the longest queue.
pub(super) const QUEUED: &str = "jobs/backup";

/// Keys that a client puts below the names of locks, and their values.
pub(super) const JUNK: [(&str, &str); 3] = [
    ("locks/jobs/cleanup/jo", "do not run, ask Jo"),
    ("locks/orders/8/locked", "by hand, 3 May"),
    ("locks/reports/daily/tmp", ""),
];

/// How long everything lasts: longer than all screens take.
const LONG: &str = "600";

/// Limit of each step.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long locks are held before anybody looks, so that the times are of some seconds.
const HELD: Duration = Duration::from_secs(4);

/// Services and cron lines; ended when dropped.
#[derive(Debug)]
pub(super) struct Scene {
    // In the order in which they end.
    _customers: Customers,
    _clerk: Clerk,
    _shops: [Shop; 2],
    _commands: Vec<Process>,
    _place: TempDir,
}

/// A process that holds a lock or waits for it.
enum Contender {
    /// A cron line of this service, with these options of `etcd-locked exec`.
    Exec(&'static str, &'static [&'static str]),
    /// `etcdctl lock`.
    Etcdctl,
}

/// Names, and who wants each, in order.
const WANTED: [(&str, &[Contender]); 3] = [
    (
        QUEUED,
        &[
            Contender::Exec("backup", &[]),
            Contender::Exec("backup", &[]),
            Contender::Etcdctl,
            Contender::Exec("restore", &[]),
        ],
    ),
    (
        "reports/daily",
        &[
            Contender::Exec("billing", &["--shared"]),
            Contender::Exec("statistics", &["--shared"]),
            Contender::Exec("accounts", &[]),
        ],
    ),
    (
        "imports",
        &[
            Contender::Exec("importer", &["--permits", "2"]),
            Contender::Exec("importer", &["--permits", "2"]),
            Contender::Exec("importer", &["--permits", "2"]),
        ],
    ),
];

impl Scene {
    /// Has all of them come in their order, and hold their locks; returns after some seconds.
    pub(super) fn play(
        cluster: &Cluster,
        etcd: &Etcd,
        program: &Path,
        shop: &Path,
    ) -> Result<Self> {
        let place = tempfile::tempdir().map_err(|error| format!("no place: {error}"))?;
        let endpoints = cluster.endpoints().join(",");
        let variables =
            [("ETCD_LOCKED_ENDPOINTS", endpoints.clone()), ("SHOP_BANK_MS", "50".to_owned())];
        let shop = || Shop::start(shop, &place.path().join("shop.db"), &variables);
        let shops = [shop()?, shop()?];
        shops[0].restock(ARTICLE)?;
        match shops[0].order(7) {
            200 => {}
            status => return Err(format!("the shop takes no order: status {status}")),
        }
        let clerk = shops[1].invoice(7)?;
        let gateway = cluster.members()[0].gateway();
        let mut commands = Vec::new();
        for (name, contenders) in WANTED {
            let below = format!("locks/{name}/");
            for contender in contenders {
                let before = gateway.keys(&below)?.len();
                let mut command = contender.command(etcd, program, &endpoints, name);
                commands.push(Process::start(name, &mut command)?);
                until(&format!("one more key of {name}"), PATIENCE, || {
                    gateway.keys(&below).is_ok_and(|keys| keys.len() > before)
                })?;
            }
        }
        let customers = Customers::send(&[&shops[0], &shops[1]], 2, None);
        thread::sleep(HELD);
        Ok(Self {
            _customers: customers,
            _clerk: clerk,
            _shops: shops,
            _commands: commands,
            _place: place,
        })
    }
}

impl Contender {
    fn command(&self, etcd: &Etcd, program: &Path, endpoints: &str, name: &str) -> Command {
        let mut command = match self {
            Self::Exec(service, options) => {
                let mut command = without_settings(program, "ETCD");
                command
                    .env("ETCD_LOCKED_SERVICE", service)
                    .args(["exec", name, "--endpoints", endpoints, "--wait", "10m"])
                    .args(*options)
                    .args(["--", "sleep", LONG]);
                command
            }
            Self::Etcdctl => {
                let mut command = without_settings(&etcd.ctl, "ETCDCTL_");
                command
                    .env("ETCDCTL_API", "3")
                    .args(["--endpoints", endpoints, "lock"])
                    .arg(format!("locks/{name}"));
                command
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// Puts values until etcd takes no more.
pub(super) fn fill(gateway: &Gateway, quota: usize) -> Result<()> {
    let value = "x".repeat(quota / 32);
    for n in 0..64 {
        match gateway.put(&format!("filler/{n}"), &value) {
            Ok(()) => {}
            Err(error) if error.contains("database space exceeded") => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Err("etcd takes more than twice its quota".to_owned())
}
