//! Stage for the example programs: it runs them and records the lines they print, in order.

use std::io::{BufRead, BufReader, PipeWriter, Write, pipe};
use std::num::NonZeroI32;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use etcd_locked_devkit::process::{Process, Signal};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Time limit for a single line: some come after three locks, each held for six seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Printed line, and when the stage read it.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) at: Instant,
    pub(crate) text: String,
}

/// Line that the stage itself writes to the pipe: when it is read, all earlier lines have been read.
const MARK: &str = "\0";

#[derive(Debug, Default)]
struct Output {
    lines: Vec<Line>,
    marks: usize,
}

/// Runs programs that all write to one pipe, so that the order of their lines is certain.
#[derive(Debug)]
pub(crate) struct Stage {
    endpoints: String,
    pipe: PipeWriter,
    output: watch::Receiver<Output>,
}

impl Stage {
    /// Creates a stage whose programs use these endpoints.
    pub(crate) fn new(endpoints: impl Into<String>) -> Stage {
        let (reader, pipe) = pipe().expect("a pipe");
        let (recorded, output) = watch::channel(Output::default());
        thread::spawn(move || {
            for text in BufReader::new(reader).lines().map_while(Result::ok) {
                let at = Instant::now();
                recorded.send_modify(|output| match text.as_str() {
                    MARK => output.marks += 1,
                    _ => output.lines.push(Line { at, text }),
                });
            }
        });
        Stage { endpoints: endpoints.into(), pipe, output }
    }

    /// Runs an example, given by `env!("CARGO_BIN_EXE_…")`.
    pub(crate) fn start(&self, program: &str, args: &[&str]) -> Program {
        self.start_with(program, args, &[])
    }

    /// Runs an example with further variables in its environment.
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
            .env("NO_COLOR", "1") // colours would change the text of the log
            .envs(environment.iter().copied());
        self.run(command)
    }

    /// Runs any other program.
    pub(crate) fn run(&self, mut command: Command) -> Program {
        let pipe = || self.pipe.try_clone().expect("a pipe's end");
        let program = Path::new(command.get_program()).file_name();
        let name = program.unwrap_or_default().to_string_lossy().into_owned();
        command.stdin(Stdio::piped()).stdout(pipe()).stderr(pipe());
        let process = Process::lead(&name, &mut command);
        let process = process.unwrap_or_else(|error| panic!("{error}"));
        Program { guard: Some(Guard::of(&process)), process, name }
    }

    /// Awaits the first line that contains this text.
    pub(crate) async fn says(&self, text: &str) -> Line {
        let mut output = self.output.clone();
        let find = |output: &Output| {
            let mut lines = output.lines.iter();
            lines.find(|line| line.text.contains(text)).cloned()
        };
        let printed = output.wait_for(|output| find(output).is_some());
        match timeout(PATIENCE, printed).await {
            Ok(Ok(output)) => find(&output).expect("the line is there"),
            _ => panic!("`{text}` was not printed"),
        }
    }

    /// Returns all lines so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        let output = self.output.borrow();
        output.lines.iter().map(|line| line.text.clone()).collect()
    }

    /// Counts the lines so far that contain this text.
    pub(crate) fn count(&self, text: &str) -> usize {
        let output = self.output.borrow();
        output.lines.iter().filter(|line| line.text.contains(text)).count()
    }

    /// Asserts that lines with these texts were printed in this order; other lines may be in between.
    pub(crate) fn printed_in_order(&self, expected: &[&str]) {
        let mut left = expected.iter().peekable();
        for line in &self.output.borrow().lines {
            left.next_if(|text| line.text.contains(**text));
        }
        if let Some(missing) = left.next() {
            panic!(
                "`{missing}` did not come when it should\nexpected, in this order:\n    {}",
                expected.join("\n    ")
            );
        }
    }

    /// Awaits the end of a program with this exit code, and all of its lines.
    pub(crate) async fn ends_with(&self, code: i32, program: &mut Program) {
        let ended = program.ends().await;
        assert_eq!(ended, code, "the exit code of {}", program.name);
        let mut output = self.output.clone();
        let marks = output.borrow().marks;
        writeln!(&self.pipe, "{MARK}").expect("a pipe");
        let read = timeout(PATIENCE, output.wait_for(|output| output.marks > marks)).await;
        assert!(matches!(read, Ok(Ok(_))), "the stage reads no more lines");
    }

    /// Awaits the end of a program with success.
    pub(crate) async fn ends_well(&self, program: &mut Program) {
        self.ends_with(0, program).await;
    }
}

impl Drop for Stage {
    /// Prints all lines of a failed test.
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        let output = self.output.borrow();
        let begin = output.lines.first().map(|line| line.at);
        println!("printed:");
        for line in &output.lines {
            let at = begin.map_or(0.0, |begin| (line.at - begin).as_secs_f64());
            println!("    {at:6.2} s  {}", line.text);
        }
    }
}

/// Child process; killed when dropped, with the processes it has started.
#[derive(Debug)]
pub(crate) struct Program {
    name: String,
    pub(crate) process: Process,
    /// Guard; `Some` until the process is waited for: after that another process may have its id. Dropped after the process.
    guard: Option<Guard>,
}

/// Shell that kills a program when our end of the shell's standard input closes without a line. That happens if the test
/// process ends before the program, or is killed.
#[derive(Debug)]
struct Guard(Child);

impl Guard {
    fn of(program: &Process) -> Guard {
        let shell = Command::new("sh")
            .args(["-c", r#"read -r ended || kill -9 "-$0""#])
            .arg(program.pid().as_raw_nonzero().to_string())
            .process_group(0) // Ctrl-C reaches the tests only
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Guard(shell.expect("a shell"))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mut stdin) = self.0.stdin.take() {
            let _ = writeln!(stdin, "ended");
        }
        let _ = self.0.wait();
    }
}

impl Program {
    pub(crate) fn pid(&self) -> NonZeroI32 {
        self.process.pid().as_raw_nonzero()
    }

    /// Presses Enter.
    pub(crate) fn enter(&mut self) {
        let stdin = self.process.streams().stdin.as_mut().expect("piped");
        writeln!(stdin).expect("the program listens");
    }

    /// Sends SIGKILL to the program and its children, and awaits the end.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("the program ends");
        self.guard = None;
    }

    /// Sends SIGTERM to them.
    pub(crate) fn terminate(&mut self) {
        self.process.signal(Signal::TERM);
    }

    async fn ends(&mut self) -> i32 {
        let end = async {
            loop {
                if let Some(status) = self.process.ended().expect("the program is our child") {
                    return status.code().unwrap_or(-1);
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        let Ok(code) = timeout(PATIENCE, end).await else {
            panic!("{} has not ended", self.name);
        };
        self.guard = None;
        code
    }
}
