//! `cargo xtask chaos`: tortures the library on a cluster of three with real faults.

use crate::etcd::{self, Etcd};
use crate::process::run;
use crate::{Result, peers, say, workspace};

/// Builds workers and runner, and runs them. The runner itself prints the last line.
pub(crate) fn chaos(args: &[String]) -> Result<()> {
    let mut args = args.to_vec();
    say::step("etcd");
    let etcd = match etcd::asked(&mut args)? {
        Some(etcd) => etcd,
        None => Etcd::find()?,
    };
    // The runner takes the folder of its results, wherever it runs.
    if let Some(at) = args.iter().position(|arg| arg == "--write") {
        let folder = workspace::root().join("tests/chaos");
        args.insert(at + 1, folder.display().to_string());
    }
    let mut current = Etcd::find_current(&etcd);
    let mut packages = None;
    if let Some(at) = args.iter().position(|arg| arg == "--peer") {
        say::step("the peer");
        let (program, client) = match args.get(at + 1).map(String::as_str) {
            Some("go") => {
                let go = peers::go("tests/chaos/peers/go", "chaos-worker")?;
                (Some(go.program), format!("clientv3 {}", go.client))
            }
            Some("aetcd") => {
                let python = peers::python()?;
                packages = Some(python.packages);
                let program = workspace::root().join("tests/chaos/peers/python/worker.py");
                (Some(program), format!("aetcd {}", python.client))
            }
            Some("etcdctl") => {
                // The same one for every etcd.
                let newest = etcd::choose("newest")?;
                let client = format!("etcdctl {}", newest.ctl_version);
                current = Some(newest);
                (None, client)
            }
            // etcd-client's is the runner's own program, and the one that starts etcdctl.
            Some("lock-service") => (None, format!("etcd-client {}", peers::etcd_client()?)),
            _ => {
                return Err(
                    "there is no such peer; there are go, aetcd, lock-service, etcdctl".to_owned(),
                );
            }
        };
        args.extend(["--client".to_owned(), client]);
        if let Some(program) = program {
            args.extend(["--program".to_owned(), program.display().to_string()]);
        }
        match args.iter().position(|arg| arg == "--mix") {
            None => args.extend(["--mix", "exclusive"].map(str::to_owned)),
            Some(at) if args.get(at + 1).is_some_and(|mix| mix == "exclusive") => {}
            Some(_) => return Err("peers make exclusive calls only: leave `--mix` out".to_owned()),
        }
    }
    say::step("building the workers");
    let mut build = workspace::cargo();
    build.args(["build", "--release", "--package", "etcd-locked-chaos"]);
    run("cargo build", &mut build)?;
    say::step(format_args!("etcd {}, three members", etcd.version));
    let best = current.as_ref().unwrap_or(&etcd);
    let mut play = workspace::cargo();
    // As users run it; unoptimised workers would leave less of the machine to etcd.
    play.args([
        "run",
        "--quiet",
        "--release",
        "--package",
        "etcd-locked-chaos",
        "--",
    ])
    .args(args)
    .envs(etcd.variables(best))
    .envs(packages.map(|packages| ("PYTHONPATH", packages)));
    run("chaos", &mut play)
}
