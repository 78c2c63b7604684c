//! `cargo xtask chaos`: tortures the library on a cluster of three with real faults.

use std::process::Command;

use crate::etcd::Choice;
use crate::options::{self, Peer};
use crate::process::run;
use crate::{Result, peers, say, workspace};

/// The package, and its program.
const PROGRAM: &str = "etcd-locked-chaos";
/// The program's test.
const TEST: &str = "sabotage";

/// Builds workers and runner, and runs them. The runner itself prints the last line.
pub(crate) fn chaos(options: &options::Chaos) -> Result<()> {
    let mut args = options.args();
    // The runner takes the folder of its results, wherever it runs.
    if options.write {
        let folder = workspace::root().join("tests/chaos");
        args.extend(["--write".to_owned(), folder.display().to_string()]);
    }
    if options.judges() {
        return run("chaos", build(options)?.args(args));
    }
    say::step("etcd");
    let etcd = options
        .asked
        .etcd
        .as_ref()
        .map_or_else(|| "newest".parse::<Choice>()?.find(), Choice::find)?;
    let mut packages = None;
    if let Some(peer) = options.peer {
        say::step("the peer");
        let (program, client) = match peer {
            Peer::Go => {
                let go = peers::go("tests/chaos/peers/go", "chaos-worker")?;
                (Some(go.program), format!("clientv3 {}", go.client))
            }
            Peer::Aetcd => {
                let python = peers::python()?;
                packages = Some(python.packages);
                let program = workspace::root().join("tests/chaos/peers/python/worker.py");
                (Some(program), format!("aetcd {}", python.client))
            }
            Peer::Etcdctl => {
                // The devkit takes the newest etcdctl that xtask keeps, for every etcd.
                let newest = "newest".parse::<Choice>()?.find()?;
                (None, format!("etcdctl {}", newest.version))
            }
            // etcd-client's is the runner's own program, and the one that starts etcdctl.
            Peer::LockService => (None, format!("etcd-client {}", peers::etcd_client()?)),
        };
        args.extend(["--client".to_owned(), client]);
        if let Some(program) = program {
            args.extend(["--program".to_owned(), program.display().to_string()]);
        }
        match options.mix.as_deref() {
            None => args.extend(["--mix", "exclusive"].map(str::to_owned)),
            Some("exclusive") => {}
            Some(_) => return Err("peers make exclusive calls only: leave `--mix` out".to_owned()),
        }
    }
    let mut play = build(options)?;
    say::step(format_args!("etcd {}, three members", etcd.version));
    play.args(args)
        .env("ETCD_BIN", &etcd.server)
        .envs(packages.map(|packages| ("PYTHONPATH", packages)));
    run("chaos", &mut play)
}

/// Builds the program that is runner and worker. It is optimised, as users' programs are: others leave less of the machine to etcd.
fn build(options: &options::Chaos) -> Result<Command> {
    say::step("building the workers");
    let program = if options.unoptimised {
        // The one that `cargo xtask test` has built, with the same features.
        workspace::build_test(&["--workspace", "--all-features", "--test", TEST], TEST)?;
        workspace::target().join("debug").join(PROGRAM)
    } else {
        let [program] = workspace::build(&["--release"], [(PROGRAM, PROGRAM)])?;
        program
    };
    let mut command = Command::new(program);
    command.current_dir(workspace::root());
    Ok(command)
}
