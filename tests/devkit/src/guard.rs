//! Guard of a server: a shell that ends the server if this process is killed and cannot end it itself.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Pid;

use crate::Result;

/// Ends the process and removes the directory, unless a line arrives before the input ends.
const SCRIPT: &str =
    r#"read -r line || { kill -9 "$1"; rm -rf "$2" || { sleep 1; rm -rf "$2"; }; }"#;

/// Guard that is dismissed when dropped. Drop it after the end of the server.
#[derive(Debug)]
pub(crate) struct Guard {
    shell: Child,
}

impl Guard {
    /// Guards the process, whose data is in the directory.
    pub(crate) fn over(pid: Pid, directory: &Path) -> Result<Self> {
        let shell = Command::new("sh")
            .args(["-c", SCRIPT, "guard"])
            .arg(pid.as_raw_nonzero().to_string())
            .arg(directory)
            .process_group(0) // Ctrl-C must not end it before its work is done
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("the guard's shell does not start: {error}"))?;
        Ok(Self { shell })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mut stdin) = self.shell.stdin.take() {
            let _ = stdin.write_all(b"dismissed\n");
        }
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Guard;
    use crate::{Process, until};

    #[test]
    fn ends_the_server_once_its_owner_is_gone() {
        let place = tempfile::tempdir().expect("a folder");
        let mut sleep = std::process::Command::new("sleep");
        let mut server = Process::start("a server", sleep.arg("600")).expect("a server");
        let mut guard = Guard::over(server.pid(), place.path()).expect("a guard");
        // The system closes the pipe of a killed process.
        drop(guard.shell.stdin.take());
        server.wait(Duration::from_secs(10)).expect("the server ends");
        until("no data are left", Duration::from_secs(10), || !place.path().exists()).unwrap();
    }
}
