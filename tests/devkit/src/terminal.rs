//! Terminal that a program runs on: it draws the program's output as people see it, and can press keys.

use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::process::Process;
use crate::{Result, lock};

/// Program on a separate terminal, which `script` (bsdutils) makes; killed when dropped.
#[derive(Debug)]
pub struct Terminal {
    size: (NonZeroU16, NonZeroU16),
    script: Process,
    keys: ChildStdin,
    written: Arc<Mutex<Vec<u8>>>,
    /// Thread that reads the program's output; ends with the program.
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    /// Starts a program, with its arguments and variables, on a terminal of this size.
    pub fn start(command: &Command, rows: u16, columns: u16) -> Result<Self> {
        let size = NonZeroU16::new(rows).zip(NonZeroU16::new(columns));
        let size = size.ok_or("a terminal without rows or columns")?;
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<_> = words.map(|word| quoted(&word.to_string_lossy())).collect();
        let line = format!("stty rows {rows} cols {columns} && exec {}", words.join(" "));
        let mut script = Command::new("script");
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => script.env(name, value),
                None => script.env_remove(name),
            };
        }
        script
            .args(["-qec", &line, "/dev/null"])
            .env("TERM", "xterm-256color")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut script = Process::start("`script` (bsdutils)", &mut script)?;
        let streams = script.streams();
        let (keys, output) = (streams.stdin.take(), streams.stdout.take());
        let mut output = output.ok_or("`script` has no output")?;
        let written = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&written);
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(many @ 1..) = output.read(&mut bytes) {
                lock(&all).extend(&bytes[..many]);
            }
        });
        Ok(Self {
            size,
            script,
            keys: keys.ok_or("`script` has no input")?,
            written,
            reader: Some(reader),
        })
    }

    /// Presses keys, one byte each.
    pub fn press(&mut self, keys: &[u8]) -> Result<()> {
        let pressed = self.keys.write_all(keys);
        pressed.map_err(|error| format!("the program reads no keys: {error}"))
    }

    /// Returns everything that the program has written so far, with the sequences that move the cursor.
    pub fn written(&self) -> String {
        String::from_utf8_lossy(&lock(&self.written)).into_owned()
    }

    /// Returns the lines that the terminal shows now, without trailing blanks and trailing empty lines.
    pub fn lines(&self) -> Vec<String> {
        let (rows, columns) = self.size;
        let mut parser = vt100::Parser::new(rows, columns, 0);
        parser.process(&lock(&self.written));
        let lines = parser.screen().rows(0, columns.get());
        let mut lines: Vec<_> = lines.map(|line| line.trim_end().to_owned()).collect();
        let last = lines.iter().rposition(|line| !line.is_empty());
        lines.truncate(last.map_or(0, |last| last + 1));
        lines
    }

    /// Waits until the program ends by itself, and all of its output is read.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let status = self.script.wait(limit)?;
        if let Some(reader) = self.reader.take() {
            let read = reader.join();
            read.map_err(|_| "the reader of a terminal has panicked")?;
        }
        Ok(status)
    }
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
