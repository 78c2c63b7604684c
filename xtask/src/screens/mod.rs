//! `cargo xtask screens`: what a person on call sees on the terminal, of locks and of an etcd that is not well.

mod scene;
mod shot;

use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

use etcd_locked_devkit::{Cluster, Setup};

use self::scene::Scene;
use self::shot::{Camera, Shot};
use crate::etcd::{Choice, Etcd};
use crate::ops::shop;
use crate::options::Asked;
use crate::{Result, say, workspace};

/// The page, below the workspace's root.
const PAGE: &str = "cli/SCREENS.md";

/// What etcd takes until it is full: enough for the locks, and soon filled.
const QUOTA: usize = 16 << 20;

/// Runs all commands, checks what `doctor` finds, and writes the page.
pub(crate) fn screens(asked: &Asked) -> Result<String> {
    say::step("etcd");
    // `doctor` finds something against every other.
    let etcd = asked.etcd.as_ref().unwrap_or(&Choice::Newest).find()?;
    say::step("building etcd-locked and the shop (the first time takes some minutes)");
    let binaries = [("etcd-locked-cli", "etcd-locked"), shop::BINARY];
    let [program, shop] = workspace::build(&[], binaries)?;
    let begun = Instant::now();
    let mut shots = in_use(&etcd, &program, &shop)?;
    say::step("a user with too few rights");
    shots.push(without_rights(&etcd, &program)?);
    workspace::write(workspace::root().join(PAGE), page(&etcd, &shots))?;
    Ok(format!(
        "screens: ok — {} screens on etcd {}, in {:.0} s; see {PAGE}",
        shots.len(),
        etcd.version,
        begun.elapsed().as_secs_f64()
    ))
}

/// The commands on a cluster in which services hold locks, and which meets one fault after the other.
fn in_use(etcd: &Etcd, program: &Path, shop: &Path) -> Result<Vec<Shot>> {
    say::step("a cluster of three, and services that hold locks");
    let quota = format!("--quota-backend-bytes={QUOTA}");
    let setup = Setup::default().binary(&etcd.server).flags([quota]);
    let cluster = Cluster::start_with(3, setup.direct())?;
    let _scene = Scene::play(&cluster, etcd, program, shop)?;
    let camera = Camera::new(program, &cluster);
    let mut shots = vec![names(&camera)?, queue(&camera)?];
    shots.extend(camera.top()?);
    say::step("doctor: a healthy cluster");
    shots.push(healthy(&camera)?);
    say::step("doctor: a stopped member");
    shots.push(stopped(&camera, &cluster)?);
    say::step("doctor: junk keys");
    shots.push(junk(&camera, &cluster)?);
    say::step("doctor: an etcd at its quota");
    shots.push(full(&camera, &cluster)?);
    Ok(shots)
}

fn names(camera: &Camera) -> Result<Shot> {
    let caption = "Two processes of a shop, and cron lines under `etcd-locked exec`.";
    let shot = camera.run("Which names are locked", caption, &["ls"])?;
    shot.shows(0, &["jobs/backup", "shelves/lamp", "1 may hold it"])
}

fn queue(camera: &Camera) -> Result<Shot> {
    let title = "Who holds a name, and who waits for it";
    let caption = "The third in the queue is an `etcdctl lock`, which writes no record of itself.";
    let shot = camera.run(title, caption, &["who", scene::QUEUED])?;
    shot.shows(0, &["holds", "waits", "not of etcd-locked"])
}

fn healthy(camera: &Camera) -> Result<Shot> {
    let caption = "The same cluster of three, in use.";
    let shot = camera.run("`doctor` on a healthy cluster", caption, &["doctor"])?;
    shot.shows(0, &["the leader", "no alarm", "names locked"])?.lacks("BAD")
}

fn stopped(camera: &Camera, cluster: &Cluster) -> Result<Shot> {
    let leader = cluster.await_leader()?;
    let member = &cluster.members()[(leader + 1) % cluster.members().len()];
    let caption = "A follower got SIGSTOP: its port is open, and it does not answer.";
    member.stop()?;
    let shot = camera.run("`doctor` with a stopped member", caption, &["doctor"]);
    member.cont()?;
    let blamed = format!("BAD {}: etcd does not answer", member.endpoint());
    shot?.shows(1, &[&blamed, "no alarm", "writes confirmed"])
}

fn junk(camera: &Camera, cluster: &Cluster) -> Result<Shot> {
    let gateway = cluster.members()[0].gateway();
    for (key, value) in scene::JUNK {
        gateway.put(key, value)?;
    }
    let caption = "A client put three keys without a lease below the names of locks.";
    let shot = camera.run("`doctor` with junk keys", caption, &["doctor"])?;
    for (key, _) in scene::JUNK {
        gateway.delete(key)?;
    }
    let keys = scene::JUNK.map(|(key, _)| key);
    shot.shows(1, &["BAD 3 keys without a lease"])?.shows(1, &keys)
}

fn full(camera: &Camera, cluster: &Cluster) -> Result<Shot> {
    scene::fill(&cluster.members()[0].gateway(), QUOTA)?;
    let caption = "A client put values until etcd, whose quota is 16 MiB, took no more.";
    let shot = camera.run("`doctor` with NOSPACE", caption, &["doctor"])?;
    shot.shows(1, &["BAD alarm NOSPACE", "etcdctl alarm disarm"])?.lacks("grant-permission")
}

/// `doctor` for a user whose role lacks the second range of keys.
fn without_rights(etcd: &Etcd, program: &Path) -> Result<Shot> {
    let setup = Setup::default().binary(&etcd.server).direct();
    let mut cluster = Cluster::start_with(3, setup)?;
    cluster.enable_auth("shop", "secret", &["locks/"])?;
    let camera = Camera::new(program, &cluster).user("shop", "secret");
    let title = "`doctor` for a user with too few rights";
    let caption =
        "The role of the user `shop` has the range of the locks, and not that of the session keys.";
    let shot = camera.run(title, caption, &["doctor"])?;
    shot.shows(1, &["ok this user may write the locks"])?
        .shows(1, &["BAD this user may not write the session keys"])?
        .shows(1, &["--prefix=true locks%s/"])
}

fn page(etcd: &Etcd, shots: &[Shot]) -> String {
    let mut page = format!(
        "# What the command line shows\n\n\
         Written by `cargo xtask screens` on etcd {}: clusters of three members, services that hold locks and wait for them, real\n\
         faults. Each screen is what a terminal {} columns wide showed. The command checks the findings of `doctor` and the exit status.\n",
        etcd.version,
        shot::COLUMNS
    );
    for shot in shots {
        let _ = write!(page, "\n{shot}");
    }
    page
}
