//! Programs that talk, and what they say, all of it in the order in which it was said.

use std::io::{BufRead, BufReader, PipeWriter, Write, pipe};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// How long a single line may be in coming: some wait for three locks, each held for six seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Something that was said.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) at: Instant,
    pub(crate) text: String,
}

/// What we write to the pipe ourselves: once it is read, so is all that was said before.
const MARK: &str = "\0";

#[derive(Debug, Default)]
struct Said {
    lines: Vec<Line>,
    marks: usize,
}

/// Where programs are run. They all write to one pipe, so that no reader of ours can mistake who was first.
#[derive(Debug)]
pub(crate) struct Stage {
    endpoints: String,
    pipe: PipeWriter,
    said: watch::Receiver<Said>,
}

impl Stage {
    /// The programs are told of these endpoints.
    pub(crate) fn new(endpoints: impl Into<String>) -> Stage {
        let (reader, pipe) = pipe().expect("a pipe");
        let (tell, said) = watch::channel(Said::default());
        thread::spawn(move || {
            for text in BufReader::new(reader).lines().map_while(Result::ok) {
                let at = Instant::now();
                tell.send_modify(|said| match text.as_str() {
                    MARK => said.marks += 1,
                    _ => said.lines.push(Line { at, text }),
                });
            }
        });
        Stage {
            endpoints: endpoints.into(),
            pipe,
            said,
        }
    }

    /// Runs an example, given by `env!("CARGO_BIN_EXE_…")`.
    pub(crate) fn start(&self, program: &str, args: &[&str]) -> Program {
        self.start_with(program, args, &[])
    }

    /// The same with more in its environment.
    pub(crate) fn start_with(
        &self,
        program: &str,
        args: &[&str],
        environment: &[(&str, &str)],
    ) -> Program {
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .env("ETCD_LOCKED_ENDPOINTS", &self.endpoints)
            .envs(environment.iter().copied());
        self.run(command)
    }

    /// Runs any other program.
    pub(crate) fn run(&self, mut command: Command) -> Program {
        let pipe = || self.pipe.try_clone().expect("a pipe's end");
        let program = Path::new(command.get_program()).file_name();
        let name = program.unwrap_or_default().to_string_lossy().into_owned();
        let child = command
            .process_group(0) // with what it starts
            .stdin(Stdio::piped())
            .stdout(pipe())
            .stderr(pipe())
            .spawn()
            .unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        let guard = Some(Guard::of(&child));
        Program { name, child, guard }
    }

    /// Awaits the first line that has this in it.
    pub(crate) async fn says(&self, text: &str) -> Line {
        let mut said = self.said.clone();
        let find = |said: &Said| {
            let mut lines = said.lines.iter();
            lines.find(|line| line.text.contains(text)).cloned()
        };
        let heard = timeout(PATIENCE, said.wait_for(|said| find(said).is_some())).await;
        match heard {
            Ok(Ok(said)) => find(&said).expect("it was there"),
            _ => panic!("`{text}` was not said"),
        }
    }

    /// The last line that has this in it, of those so far.
    pub(crate) fn last(&self, text: &str) -> Line {
        let said = self.said.borrow();
        let mut lines = said.lines.iter().rev();
        let last = lines.find(|line| line.text.contains(text)).cloned();
        last.unwrap_or_else(|| panic!("`{text}` was not said"))
    }

    /// All that was said.
    pub(crate) fn lines(&self) -> Vec<String> {
        let said = self.said.borrow();
        said.lines.iter().map(|line| line.text.clone()).collect()
    }

    /// How often this was said.
    pub(crate) fn count(&self, text: &str) -> usize {
        let said = self.said.borrow();
        said.lines
            .iter()
            .filter(|line| line.text.contains(text))
            .count()
    }

    /// That all of this was said, in this order, whatever else was said between.
    pub(crate) fn said_in_order(&self, expected: &[&str]) {
        let mut left = expected.iter().peekable();
        for line in &self.said.borrow().lines {
            left.next_if(|text| line.text.contains(**text));
        }
        if let Some(missing) = left.next() {
            panic!(
                "`{missing}` did not come when it should\nexpected, in this order:\n    {}",
                expected.join("\n    ")
            );
        }
    }

    /// Awaits the end of a program, with this exit code, and all that it has said.
    pub(crate) async fn ends_with(&self, code: i32, program: &mut Program) {
        let ended = program.ends().await;
        assert_eq!(ended, code, "the exit code of {}", program.name);
        let mut said = self.said.clone();
        let marks = said.borrow().marks;
        writeln!(&self.pipe, "{MARK}").expect("a pipe");
        let heard = timeout(PATIENCE, said.wait_for(|said| said.marks > marks)).await;
        assert!(matches!(heard, Ok(Ok(_))), "what was said is not read");
    }

    /// The same with success.
    pub(crate) async fn ends_well(&self, program: &mut Program) {
        self.ends_with(0, program).await;
    }
}

impl Drop for Stage {
    /// Whatever has failed, what was said may tell why.
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        let said = self.said.borrow();
        let begin = said.lines.first().map(|line| line.at);
        println!("printed:");
        for line in &said.lines {
            let at = begin.map_or(0.0, |begin| (line.at - begin).as_secs_f64());
            println!("    {at:6.2} s  {}", line.text);
        }
    }
}

/// A process of ours; killed when dropped, with those it has started.
#[derive(Debug)]
pub(crate) struct Program {
    name: String,
    child: Child,
    /// Until the process is waited for: after that its id may be a stranger's.
    guard: Option<Guard>,
}

/// A shell that kills a program when our end of its standard input closes without a word: when the test process has ended before
/// the program, or was killed.
#[derive(Debug)]
struct Guard(Child);

impl Guard {
    fn of(program: &Child) -> Guard {
        let shell = Command::new("sh")
            .args(["-c", r#"read -r ended || kill -9 "-$0""#])
            .arg(program.id().to_string())
            .process_group(0) // a Ctrl-C is for the tests
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Guard(shell.expect("a shell"))
    }

    fn dismiss(mut self) {
        if let Some(mut stdin) = self.0.stdin.take() {
            let _ = writeln!(stdin, "ended");
        }
        let _ = self.0.wait();
    }
}

impl Program {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Presses Enter.
    pub(crate) fn enter(&mut self) {
        let stdin = self.child.stdin.as_mut().expect("piped");
        writeln!(stdin).expect("the program listens");
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        let Some(guard) = self.guard.take() else {
            return;
        };
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
        guard.dismiss();
    }

    /// SIGTERM.
    pub(crate) fn terminate(&self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).expect("the program runs");
    }

    async fn ends(&mut self) -> i32 {
        let end = async {
            loop {
                if let Some(status) = self.child.try_wait().expect("it is ours to wait for") {
                    return status.code().unwrap_or(-1);
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        let Ok(code) = timeout(PATIENCE, end).await else {
            panic!("{} has not ended", self.name);
        };
        if let Some(guard) = self.guard.take() {
            guard.dismiss();
        }
        code
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}
