//! Command of the simulator; see [`etcd_locked_sim`].

use std::process::ExitCode;

fn main() -> ExitCode {
    etcd_locked_sim::command()
}
