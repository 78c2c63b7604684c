//! Shot of a terminal on which a command ran.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use etcd_locked_devkit::binary::without_settings;
use etcd_locked_devkit::{Cluster, Terminal, until};

use crate::Result;

/// Columns of the terminal.
pub(super) const COLUMNS: u16 = 120;

/// Lines of a terminal on which all that a command prints is in sight.
const LINES: u16 = 60;

/// Lines of the terminal of `top`.
const TOP: u16 = 12;

/// Limit of a command, longer than `doctor` takes with members that do not answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// What runs commands on a terminal, each with the endpoints of a cluster.
#[derive(Debug)]
pub(super) struct Camera {
    program: PathBuf,
    endpoints: String,
    user: Option<String>,
}

impl Camera {
    pub(super) fn new(program: &Path, cluster: &Cluster) -> Self {
        Self { program: program.to_owned(), endpoints: cluster.endpoints().join(","), user: None }
    }

    /// Has the commands log in to etcd.
    pub(super) fn user(mut self, name: &str, password: &str) -> Self {
        self.user = Some(format!("{name}:{password}"));
        self
    }

    /// Runs a command to its end.
    pub(super) fn run(
        &self,
        title: &'static str,
        caption: &'static str,
        args: &[&str],
    ) -> Result<Shot> {
        let mut terminal = Terminal::start(&self.command(args), LINES, COLUMNS)?;
        let status = terminal.wait(PATIENCE)?;
        Ok(Shot { status: status.code(), ..Shot::of(&terminal, title, caption, &args.join(" ")) })
    }

    /// Runs `top`: its table once it knows how many contenders go, then the question before a kick, to which the answer is no.
    pub(super) fn top(&self) -> Result<[Shot; 2]> {
        let mut terminal = Terminal::start(&self.command(&["top"]), TOP, COLUMNS)?;
        let shows = |terminal: &Terminal, what: &str, holds: &dyn Fn(&[String]) -> bool| {
            until(what, PATIENCE, || holds(&terminal.lines()))
        };
        shows(&terminal, "contenders gone in `top`", &|lines| {
            let mut lines = lines.iter();
            let of_lamp = lines.find(|line| line.starts_with("shelves/lamp "));
            of_lamp.is_some_and(|line| !line.ends_with(" 0.0") && !line.ends_with(" -"))
        })?;
        let caption =
            "Customers of the shop want the same lamp, so its lock passes from process to process.";
        let table = Shot::of(&terminal, "Names by waiters, live", caption, "top");
        terminal.press(b"\r")?;
        shows(&terminal, "contenders in `top`", &|lines| {
            lines.iter().any(|line| line.starts_with("holds "))
        })?;
        terminal.press(b"k")?;
        shows(&terminal, "the question of `top`", &|lines| {
            lines.last().is_some_and(|line| line.ends_with("[y/N]"))
        })?;
        let caption =
            "The same `top` after Enter and `k`: all contenders of the name, and whom a kick hits.";
        let question = Shot::of(&terminal, "Look into a name, and kick", caption, "top");
        terminal.press(b"nq")?;
        let status = terminal.wait(PATIENCE)?.code();
        let ended = |shot| Shot { status, ..shot };
        Ok([ended(table).shows(0, &["GONE/S"])?, ended(question).shows(0, &[])?])
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = without_settings(&self.program, "ETCD");
        command.args(args).env("ETCD_LOCKED_ENDPOINTS", &self.endpoints);
        if let Some(user) = &self.user {
            command.env("ETCD_LOCKED_USER", user);
        }
        command
    }
}

/// What a terminal showed.
#[derive(Debug)]
pub(super) struct Shot {
    title: &'static str,
    caption: &'static str,
    command: String,
    lines: Vec<String>,
    /// How the command ended; `None`: by a signal.
    status: Option<i32>,
}

impl Shot {
    fn of(terminal: &Terminal, title: &'static str, caption: &'static str, args: &str) -> Self {
        Self {
            title,
            caption,
            command: format!("etcd-locked {args}"),
            lines: terminal.lines(),
            status: None,
        }
    }

    /// Fails unless the command ended like this, and the terminal shows these words.
    pub(super) fn shows(self, status: i32, words: &[&str]) -> Result<Self> {
        if self.status != Some(status) {
            return Err(format!("the exit status is not {status}:\n{self}"));
        }
        match words.iter().find(|word| !self.has(word)) {
            None => Ok(self),
            Some(word) => Err(format!("`{word}` is not in:\n{self}")),
        }
    }

    /// Fails if the terminal shows these words.
    pub(super) fn lacks(self, words: &str) -> Result<Self> {
        match self.has(words) {
            false => Ok(self),
            true => Err(format!("`{words}` is in:\n{self}")),
        }
    }

    /// Looks past all blanks: the terminal breaks lines wherever they are too long.
    fn has(&self, words: &str) -> bool {
        let dense = |text: &str| text.split_whitespace().collect::<String>();
        dense(&self.lines.concat()).contains(&dense(words))
    }
}

/// As a section of the page.
impl fmt::Display for Shot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { title, caption, command, lines, status } = self;
        let ended = match status {
            Some(status) => format!("Exit status {status}."),
            None => "Ended by a signal.".to_owned(),
        };
        let lines = lines.join("\n");
        write!(f, "## {title}\n\n{caption} {ended}\n\n```console\n$ {command}\n{lines}\n```\n")
    }
}
