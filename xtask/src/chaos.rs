//! Command `cargo xtask chaos`: runs the library on a cluster of three, under real faults.

use std::process::Command;

use crate::etcd;
use crate::options::Args;
use crate::process::run;
use crate::{Result, peers, say, workspace};

/// Name of the package, and of its program.
const PROGRAM: &str = "etcd-locked-chaos";

/// Builds workers and runner, and runs them.
pub(crate) fn chaos(mut args: Args) -> Result<String> {
    let choice = args.etcd()?.unwrap_or("newest".parse()?);
    let (built, writes) = (args.flag("--built"), args.flag("--write"));
    let peer = args.value("--peer")?;
    let plays = !args.has("--judge") && !args.has("--help");
    let mixes = args.has("--mix");
    let mut runner = build(built)?;
    // Paths in the options, such as those of histories, are relative to the root.
    runner.current_dir(workspace::root()).args(args.rest());
    if writes {
        runner.args(["--write", "tests/chaos"]);
    }
    if plays {
        let etcd = etcd::find(Some(&choice))?;
        runner.env("ETCD_BIN", &etcd.server);
        if let Some(peer) = peer {
            add_peer(&mut runner, &peer)?;
            if !mixes {
                runner.args(["--mix", "exclusive"]); // peers make no other calls
            }
        }
        say::step(format_args!("etcd {}, three members", etcd.version));
    }
    run("chaos", &mut runner)?;
    Ok("chaos: ok".to_owned())
}

/// Brings a peer, and adds the arguments through which the runner finds it.
fn add_peer(runner: &mut Command, peer: &str) -> Result<()> {
    say::step("the peer");
    let client = match peer {
        "go" => {
            let go = peers::go("tests/chaos/peers/go", "chaos-worker")?;
            runner.arg("--program").arg(go.program);
            format!("clientv3 {}", go.client)
        }
        "aetcd" => {
            let python = peers::python()?;
            let worker = workspace::root().join("tests/chaos/peers/python/worker.py");
            runner.arg("--program").arg(worker);
            runner.env("PYTHONPATH", python.packages);
            format!("aetcd {}", python.client)
        }
        // For every etcd, the devkit uses the newest etcdctl that xtask keeps.
        "etcdctl" => format!("etcdctl {}", etcd::find(Some(&"newest".parse()?))?.version),
        // The runner's own program serves as this peer.
        "lock-service" => format!("etcd-client {}", peers::etcd_client()?),
        other => {
            return Err(format!(
                "there is no peer `{other}`; the peers are go, aetcd, lock-service and etcdctl"
            ));
        }
    };
    runner.args(["--peer", peer, "--client", &client]);
    Ok(())
}

/// Builds the program that is runner and worker. It is optimised, as users' programs are, and so leaves more of the machine to etcd.
fn build(built: bool) -> Result<Command> {
    say::step("building the workers");
    if !built {
        let [program] = workspace::build(&["--release"], [(PROGRAM, PROGRAM)])?;
        return Ok(Command::new(program));
    }
    Ok(Command::new(workspace::built_for_tests(&["sabotage"])?.join(PROGRAM)))
}
