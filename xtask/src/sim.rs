//! Command `cargo xtask sim`: builds and runs the simulator; with `--write` also the exhaustive search, and writes all figures.

use std::path::Path;

use crate::process::{output, run};
use crate::{Result, say, workspace};

pub(crate) fn sim(writes: bool, args: &[String]) -> Result<String> {
    say::step("random schedules of the production core");
    if !writes {
        play(args, None)?;
        return Ok("sim: ok — no promise was violated".to_owned());
    }
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let [schedules, searches] = ["schedules", "searches"].map(|name| folder.path().join(name));
    play(args, Some(&schedules))?;
    say::step("every schedule of a few clients");
    play(&["--search".to_owned()], Some(&searches))?;

    let version = output(workspace::cargo().args(["--version"]))?;
    let results = format!(
        "# What the simulator has seen\n\n\
         Written by `cargo xtask sim --write`, with {}, on {} processors.\n\n\
         ## Random schedules of the production core\n\n{}\n\
         ## Every schedule of a few clients\n\n\
         Two or three clients, one name, leases of two seconds. Any message may arrive next; two faults (a request given up though \
         it arrives later, lost, or carried out twice; an answer lost), one call given up, and where time goes on, two timers and \
         one sleep until a lease has run out.\n\n{}",
        version.trim(),
        std::thread::available_parallelism().map_or(1, usize::from),
        workspace::read(&schedules)?,
        workspace::read(&searches)?,
    );
    let place = workspace::root().join("tests/sim/RESULTS.md");
    workspace::write(&place, results)?;
    Ok(format!("sim: ok — no promise was violated; {}", place.display()))
}

/// Runs the simulator, which writes its figures to that file.
fn play(args: &[String], figures: Option<&Path>) -> Result<()> {
    let mut play = workspace::cargo();
    play.args(["run", "--profile", "sim", "--package", "etcd-locked-sim", "--"]).args(args);
    if let Some(file) = figures {
        play.arg("--report").arg(file);
    }
    run("etcd-locked-sim", &mut play)
}
