//! Tests of `etcd-locked exec`, on real etcd: the command never runs while another process can have its lock.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use etcd_locked_devkit::process::Signal;
use etcd_locked_devkit::{Direction, Member, Process, Proxy, until};
use rustix::process::{Pid, kill_process};

/// Time limit, longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Command that prints the ids of a process in its group, of one that has left it, and its own. On SIGTERM it prints a line and runs on.
const STUBBORN: &[&str] = &[
    "sh",
    "-c",
    "trap 'echo asked' TERM; sleep 600 & echo $!; setsid sleep 600 & echo $!; \
                        echo $$; while :; do sleep 0.05; done",
];

struct Run {
    process: Process,
    lines: Receiver<String>,
}

impl Run {
    /// Starts `exec` with these arguments.
    fn start(endpoint: &str, args: &[&str]) -> Self {
        Self::of(exec(endpoint, args), Stdio::null())
    }

    fn of(mut command: Command, stdin: impl Into<Stdio>) -> Self {
        let (read, write) = std::io::pipe().expect("a pipe");
        command.stdin(stdin).stdout(write.try_clone().expect("a pipe")).stderr(write);
        let process = Process::start("etcd-locked", &mut command).expect("it starts");
        let (sender, lines) = channel();
        thread::spawn(move || {
            let lines = BufReader::new(read).lines().map_while(Result::ok);
            lines.for_each(|line| _ = sender.send(line));
        });
        Self { process, lines }
    }

    /// Runs `STUBBORN` with this TTL; returns its processes too.
    fn stubborn(endpoint: &str, ttl: &str) -> (Self, Vec<Pid>) {
        Self::stubborn_of(exec(endpoint, &[&["jobs/a", "--ttl", ttl, "--"], STUBBORN].concat()))
    }

    fn stubborn_of(command: Command) -> (Self, Vec<Pid>) {
        let run = Self::of(command, Stdio::null());
        let pids = (0..3).map(|_| run.pid()).collect();
        (run, pids)
    }

    /// Returns the next line of the command, or of etcd-locked.
    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line")
    }

    fn pid(&self) -> Pid {
        pid(self.line().parse().expect("a process id"))
    }

    /// Waits for the end with this exit status, `None` after a signal; returns the output since then.
    #[track_caller]
    fn end(mut self, status: impl Into<Option<i32>>) -> String {
        let ended = self.process.wait(PATIENCE).expect("it ends");
        let said = self.lines.iter().collect::<Vec<_>>().join("\n");
        assert_eq!(ended.code(), status.into(), "{said}");
        said
    }

    fn guardian(&self) -> Pid {
        *children(self.process.pid()).first().expect("a guardian")
    }
}

/// Returns the children of a process, including ended ones.
fn children(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_nonzero();
    let pids = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let pids = pids.expect("it lives");
    pids.split_whitespace().map(|it| pid(it.parse().expect("a number"))).collect()
}

fn exec(endpoint: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_etcd-locked"));
    command.args(["exec", "--endpoints", endpoint]).args(args).env("ETCD_LOCKED_TTL", ""); // as if it were not set
    command
}

/// Makes a command that another program becomes.
fn through(program: &str, args: &[&str], command: &Command) -> Command {
    let mut first = Command::new(program);
    first.args(args).arg(command.get_program()).args(command.get_args());
    first
}

fn pid(raw: i32) -> Pid {
    Pid::from_raw(raw).expect("a process id")
}

fn lives(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    // The state follows the name.
    let stat = stat.unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

/// Runs another command under the name of `STUBBORN`, and returns which of these processes live when it begins.
fn seen_by_next(etcd: &Member, pids: &[Pid]) -> String {
    let pids: Vec<_> = pids.iter().map(|pid| pid.as_raw_nonzero().to_string()).collect();
    // A process that has ended does not count as alive, even if its parent is stopped and does not reap it.
    let script = format!(
        "for pid in {}; do grep -qs '^State:.[^ZX]' /proc/$pid/status && echo $pid lives; done; echo begun",
        pids.join(" ")
    );
    let args = ["jobs/a", "--wait", "60s", "--", "sh", "-c", &script];
    let output = exec(&etcd.endpoint(), &args).stderr(Stdio::null()).output().expect("it runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn exit_status_is_the_commands() {
    let etcd = Member::start().expect("an etcd");
    for (command, status) in [
        (&["true"][..], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "kill -9 $$"], 137),
        (&["/no/such/program"], 127),
        (&["/"], 126),
    ] {
        let args = [&["jobs/a", "--"], command].concat();
        Run::start(&etcd.endpoint(), &args).end(status);
    }
    assert_eq!(etcd.gateway().keys("locks/jobs/").expect("keys"), [""; 0], "all are released");
    assert_eq!(etcd.gateway().leases().expect("leases"), [0; 0]);
}

#[test]
fn command_gets_name_and_token_and_no_other_setting() {
    let etcd = Member::start().expect("an etcd");
    let token = || {
        let show = "env | grep -E '^ETCD(_LOCKED|CTL)_' | sort";
        let mut exec = exec(&etcd.endpoint(), &["jobs/a", "--", "sh", "-c", show]);
        for name in ["ETCD_LOCKED_ENDPOINTS", "ETCDCTL_PASSWORD", "ETCD_LOCKED_TOKEN"] {
            exec.env(name, "secret");
        }
        let said = Run::of(exec, Stdio::null()).end(0);
        let token = said.strip_prefix("ETCD_LOCKED_NAME=jobs/a\nETCD_LOCKED_TOKEN=");
        token.and_then(|it| it.parse::<i64>().ok()).unwrap_or_else(|| panic!("{said}"))
    };
    let first = token();
    assert!(token() > first && first > 0);
}

#[test]
fn signals_are_passed_on() {
    let etcd = Member::start().expect("an etcd");
    for name in ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"] {
        let script = format!("trap 'exit 40' {name}; echo ready; while :; do sleep 0.02; done");
        let exec = exec(&etcd.endpoint(), &["jobs/a", "--", "sh", "-c", &script]);
        // A script makes its background jobs ignore SIGINT and SIGQUIT. If it runs these tests so, no signal would arrive here.
        let run = Run::of(through("env", &["--default-signal"], &exec), Stdio::null());
        assert_eq!(run.line(), "ready");
        let pid = run.process.pid().as_raw_nonzero().to_string();
        Command::new("kill").args(["-s", name, &pid]).status().expect("`kill` runs");
        run.end(40);
    }
}

/// After `nohup` neither etcd-locked nor the command ends with the terminal.
#[test]
fn signal_that_is_ignored_stays_so() {
    let etcd = Member::start().expect("an etcd");
    let script = "kill -HUP $$; echo lives; while :; do sleep 0.02; done";
    let exec = exec(&etcd.endpoint(), &["jobs/a", "--", "sh", "-c", script]);
    let nohup = ["-c", "trap '' HUP; exec \"$@\"", "sh"];
    let mut run = Run::of(through("sh", &nohup, &exec), Stdio::null());
    assert_eq!(run.line(), "lives");
    run.process.signal(Signal::HUP);
    run.process.signal(Signal::TERM);
    run.end(143);
}

/// If etcd-locked replaces a shell, it inherits the processes that the shell had started.
#[test]
fn processes_of_others_are_spared() {
    let etcd = Member::start().expect("an etcd");
    let exec = exec(&etcd.endpoint(), &["jobs/a", "--", "true"]);
    let script = "sleep 60 > /dev/null 2>&1 & echo $!; exec \"$@\"";
    let run = Run::of(through("sh", &["-c", script, "sh"], &exec), Stdio::null());
    let other = run.pid();
    run.end(0);
    assert!(lives(other));
    kill_process(other, Signal::KILL).expect("it lives");
}

#[test]
fn lock_that_is_held_is_said_with_its_holder() {
    let etcd = Member::start().expect("an etcd");
    let (holder, _) = Run::stubborn(&etcd.endpoint(), "15s");
    for (options, status) in [
        (&["--no-wait"][..], 75),
        (&["--wait", "3s", "--conflict-exit-code", "9"], 9),
        (&["--no-wait", "--on-held", "skip"], 0),
        (&["--wait", "3s", "--on-held", "skip"], 0),
        (&["--wait", "none", "--on-held", "skip"], 0),
        (&["--wait", "0s"], 75),
    ] {
        let args = [&["jobs/a"], options, &["--", "echo", "ran"]].concat();
        let said = Run::start(&etcd.endpoint(), &args).end(status);
        let pid = format!("process {}", holder.process.pid().as_raw_nonzero());
        assert!(said.contains("it is held by `sh` on"), "{said}");
        assert!(said.contains(&pid) && !said.contains("ran"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

/// No other process holds the name, so no other process does the work, today or tomorrow.
#[test]
fn key_that_never_expires_is_not_skipped() {
    let etcd = Member::start().expect("an etcd");
    let put = etcd.gateway().put("locks/jobs/a/0", "");
    put.expect("a key without a lease");
    let args = ["jobs/a", "--no-wait", "--on-held", "skip", "--", "true"];
    let said = Run::start(&etcd.endpoint(), &args).end(75);
    assert!(said.contains("has no lease and never expires"), "{said}");
}

#[test]
fn name_stays_locked_after_a_short_command() {
    let etcd = Member::start().expect("an etcd");
    let line = ["jobs/a", "--min-hold", "60s", "--no-wait", "--on-held", "skip"];
    let args = [&line[..], &["--", "echo", "ran"]].concat();
    assert_eq!(Run::start(&etcd.endpoint(), &args).end(0), "ran");
    let said = Run::start(&etcd.endpoint(), &args).end(0);
    assert!(said.contains("`jobs/a`: skipped: it is held"), "{said}");
}

#[test]
fn readers_and_permits_run_together() {
    let etcd = Member::start().expect("an etcd");
    for (name, mode) in [("jobs/a", &["--shared"][..]), ("jobs/b", &["--permits", "2"])] {
        let run = |options: &[&str]| {
            let script = ["--", "sh", "-c", "echo ready; sleep 60"];
            let args = [&[name], mode, options, &script[..]].concat();
            Run::start(&etcd.endpoint(), &args)
        };
        let (one, other) = (run(&[]), run(&[]));
        assert_eq!((one.line(), other.line()), ("ready".into(), "ready".into()));
        if name == "jobs/b" {
            run(&["--no-wait"]).end(75); // there are two permits
        }
    }
}

/// The exit statuses do not need a standard error.
#[test]
fn own_statuses_start_at_64() {
    let etcd = Member::start().expect("an etcd");
    let (_holder, _) = Run::stubborn(&etcd.endpoint(), "15s");
    for (args, status) in [
        (&["jobs/a"][..], 64),
        (&["jobs/a", "--ttl", "1s", "--", "true"], 64),
        (&["jobs//a", "--", "true"], 64),
        (&["jobs/a", "--permits", "0", "--", "true"], 64),
        (&["jobs/a", "--permits", "2", "--shared", "--", "true"], 64),
        (&["jobs/a", "--wait", "1s", "--no-wait", "--", "true"], 64),
        (&["jobs/a", "--endpoints", "http://127.0.0.1:1", "--", "true"], 69),
        (&["jobs/a", "--no-wait", "--", "true"], 75),
        (&["jobs/b", "--no-wait", "--", "/no/such/program"], 127),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_etcd-locked"));
        command.arg("exec").args(args).env("ETCD_LOCKED_ENDPOINTS", etcd.endpoint());
        let (read, write) = std::io::pipe().expect("a pipe");
        drop(read);
        let ended = command.stderr(write).status().expect("it runs");
        assert_eq!(ended.code(), Some(status), "{args:?}");
    }
    assert_eq!(etcd.gateway().keys("locks/jobs/b/").expect("keys"), [""; 0]);
}

#[test]
fn signal_while_waiting_leaves_the_queue() {
    let etcd = Member::start().expect("an etcd");
    let (_holder, _) = Run::stubborn(&etcd.endpoint(), "15s");
    let mut waiter = Run::start(&etcd.endpoint(), &["jobs/a", "--wait", "60s", "--", "true"]);
    let contenders = || etcd.gateway().keys("locks/jobs/a/").expect("keys").len();
    until("the waiter", PATIENCE, || contenders() == 2).expect("the waiter");
    waiter.process.signal(Signal::TERM);
    waiter.end(143);
    assert_eq!(contenders(), 1);
}

/// Runs `STUBBORN`, disturbs it or its connection to etcd, and asserts that none of its processes lives when another command begins
/// under the same name. Then lets it continue until it ends with this status, and returns its output.
///
/// With a TTL of six seconds a busy machine does not lose the lock, and the guardian has time for a SIGTERM.
fn endangered(status: impl Into<Option<i32>>, fault: impl FnOnce(&mut Run, &Proxy)) -> String {
    let etcd = Member::start().expect("an etcd");
    let proxy = Proxy::start(etcd.address()).expect("a proxy");
    let (mut run, pids) = Run::stubborn(&proxy.endpoint(), "6s");
    fault(&mut run, &proxy);
    assert_eq!(seen_by_next(&etcd, &pids), "begun\n");
    run.process.cont();
    run.end(status)
}

#[test]
fn partition_ends_the_command_before_another_begins() {
    let said = endangered(137, |_, proxy| {
        proxy.cut(Direction::Requests);
        proxy.cut(Direction::Answers);
    });
    assert!(said.lines().any(|line| line == "asked"), "{said}");
    assert!(said.contains("the lock was lost"), "{said}");
}

#[test]
fn stopped_wrapper_is_no_danger() {
    let said = endangered(137, |run, _| run.process.stop().expect("it stops"));
    assert!(said.contains("the lock was lost"), "{said}");
}

#[test]
fn killed_wrapper_is_no_danger() {
    let said = endangered(None, |run, _| run.process.kill().expect("it ends"));
    assert!(said.contains("etcd-locked itself has ended"), "{said}");
}

#[test]
fn command_of_a_killed_guardian_is_killed() {
    let said = endangered(137, |run, _| {
        kill_process(run.guardian(), Signal::KILL).expect("it lives");
    });
    assert!(said.contains("the guardian does not answer"), "{said}");
}

/// No process of ours can act, so the system kills the command. Processes that the command started live on, unless systemd or a
/// container ends them.
#[test]
fn command_dies_at_once_with_wrapper_and_guardian() {
    let etcd = Member::start().expect("an etcd");
    let dies_after = |_| {
        let (mut run, pids) = Run::stubborn(&etcd.endpoint(), "2s");
        let guardian = run.guardian();
        // Stopped, so that the one that is killed later does nothing in between.
        run.process.stop().expect("it stops");
        kill_process(guardian, Signal::STOP).expect("it lives");
        let begun = Instant::now();
        kill_process(guardian, Signal::KILL).expect("it lives");
        run.process.kill().expect("it lives");
        until("the command's end", PATIENCE, || !lives(pids[2])).expect("it ends");
        let took = begun.elapsed();
        pids[..2].iter().for_each(|it| kill_process(*it, Signal::KILL).expect("it lives"));
        took
    };
    // A busy machine may cause a delay itself.
    assert!((0..5).map(dies_after).any(|took| took < Duration::from_millis(100)));
}

/// No process reads the output of etcd-locked, but the guardian still kills.
#[test]
fn full_standard_error_delays_no_kill() {
    let etcd = Member::start().expect("an etcd");
    let (unread, mut full) = std::io::pipe().expect("a pipe");
    let args = [&["jobs/a", "--ttl", "3s", "--"], STUBBORN].concat();
    let other = format!("exec \"$@\" 2> /proc/{}/fd/{}", std::process::id(), full.as_raw_fd());
    let exec = through("sh", &["-c", &other, "sh"], &exec(&etcd.endpoint(), &args));
    // This continues until the pipe has no reader, so the pipe stays full.
    thread::spawn(move || while full.write_all(&[b'.'; 4096]).is_ok() {});
    let (run, pids) = Run::stubborn_of(exec);
    etcd.stop().expect("it stops");
    let begun = Instant::now();
    until("the end", PATIENCE, || !pids.iter().any(|it| lives(*it))).expect("all end");
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(3), "{took:.1?}");
    etcd.cont().expect("it goes on");
    run.end(137);
    drop(unread);
}

/// The wrapper kills even if the guardian reads no more messages and the link is full.
#[test]
fn wrapper_kills_where_the_guardian_is_stopped() {
    let said = endangered(137, |run, proxy| {
        kill_process(run.guardian(), Signal::STOP).expect("it lives");
        // Each is a message, unless the wrapper sees two of them as one. The link takes less than 300.
        for signal in [Signal::USR1, Signal::USR2].repeat(600) {
            run.process.signal(signal);
            thread::sleep(Duration::from_millis(1));
        }
        proxy.cut(Direction::Requests);
    });
    assert!(said.contains("the lock was lost: the command is killed"), "{said}");
}

/// No renewal gets a response, so a kill that waited for one would come after the next command's begin.
#[test]
fn lock_that_an_operator_takes_away_kills_at_once() {
    let etcd = Member::start().expect("an etcd");
    let proxy = Proxy::start(etcd.address()).expect("a proxy");
    let (run, pids) = Run::stubborn(&proxy.endpoint(), "15s");
    thread::sleep(Duration::from_millis(2_500)); // by then the holder watches its key
    proxy.freeze(Direction::Requests);
    let keys = etcd.gateway().keys("locks/jobs/a/").expect("keys");
    etcd.gateway().delete(&keys[0]).expect("deleted");
    assert_eq!(seen_by_next(&etcd, &pids), "begun\n");
    proxy.thaw();
    let said = run.end(137);
    assert!(!said.contains("SIGTERM"), "{said}");
}

#[test]
fn kick_lets_the_command_end_in_its_time() {
    let etcd = Member::start().expect("an etcd");
    let slow = "trap 'sleep 0.3; exit 5' TERM; echo $$; while :; do sleep 0.05; done";
    let run = Run::start(&etcd.endpoint(), &["jobs/a", "--", "sh", "-c", slow]);
    run.pid();
    let mut kick = Command::new(env!("CARGO_BIN_EXE_etcd-locked"));
    let kick = kick.args(["kick", "jobs/a", "--yes", "--endpoints", &etcd.endpoint()]).status();
    assert!(kick.expect("it runs").success());
    let said = run.end(5);
    assert!(said.contains("an operator takes the lock away"), "{said}");
}

#[test]
fn nothing_of_the_command_outlives_the_lock() {
    let etcd = Member::start().expect("an etcd");
    let leaves = "sleep 600 & echo $!; setsid sleep 600 & echo $!; exit 3";
    let run = Run::start(&etcd.endpoint(), &["jobs/a", "--", "sh", "-c", leaves]);
    let pids = [run.pid(), run.pid()];
    let said = run.end(3);
    assert!(said.contains("left behind is killed: 2 process"), "{said}");
    assert!(!pids.into_iter().any(lives));
}

#[test]
fn orphans_that_have_ended_are_reaped_at_once() {
    let etcd = Member::start().expect("an etcd");
    let script = "for i in 1 2 3 4 5 6 7 8; do (sleep 0.1 &); done; echo $$; \
                  echo ready; read it; exit 5";
    let command = exec(&etcd.endpoint(), &["jobs/a", "--", "sh", "-c", script]);
    let (stdin, more) = std::io::pipe().expect("a pipe");
    let run = Run::of(command, stdin);
    let leader = run.pid();
    assert_eq!(run.line(), "ready");
    let guardian = run.guardian();
    let one = || children(guardian) == [leader];
    until("the end of all orphans", PATIENCE, one).expect("only the command is left");
    drop(more);
    run.end(5);
}

#[test]
fn renewals_let_the_command_outlast_the_ttl() {
    let etcd = Member::start().expect("an etcd");
    let args = ["jobs/a", "--ttl", "6s", "--", "sleep", "8"];
    assert_eq!(Run::start(&etcd.endpoint(), &args).end(0), "");
}
