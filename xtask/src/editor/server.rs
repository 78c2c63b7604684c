//! Server of the Language Server Protocol: rust-analyzer, driven over its standard streams.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::process::Process;
use crate::{Result, say};

/// Time for the answer to one question.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time to load a crate and everything below it, with the build scripts.
const LOADED: Duration = Duration::from_secs(30 * 60);
/// Time to end after it was asked to.
const END: Duration = Duration::from_secs(10);
/// Lines of its log that an error shows.
const LOGGED: usize = 5;

/// Codes of answers that say: ask again, what you asked about has changed meanwhile.
const ASK_AGAIN: [i64; 2] = [-32801, -32802];

/// A running server.
pub(crate) struct Server {
    process: Process,
    input: ChildStdin,
    messages: Receiver<Value>,
    /// Id of the last question.
    asked: i64,
    /// The last status that it announced.
    status: Value,
    /// The last lines of its log.
    log: VecDeque<String>,
}

impl Server {
    /// Starts a server for a crate, and returns it once the crate is loaded.
    pub(crate) fn start(program: &Path, folder: &Path, options: Value) -> Result<Self> {
        let mut command = Command::new(program);
        command
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = Process::lead("rust-analyzer", &mut command)?;
        let streams = process.streams();
        let (input, output) = streams
            .stdin
            .take()
            .zip(streams.stdout.take())
            .ok_or("rust-analyzer has no streams")?;
        let mut server = Self {
            process,
            input,
            messages: read(output),
            asked: 0,
            status: Value::Null,
            log: VecDeque::new(),
        };
        server.initialize(folder, options)?;
        server.load()?;
        Ok(server)
    }

    fn initialize(&mut self, folder: &Path, options: Value) -> Result<()> {
        let uri = uri(folder);
        self.ask(
            "initialize",
            json!({
                "processId": std::process::id(),
                "rootUri": uri,
                "workspaceFolders": [{ "uri": uri, "name": "crate" }],
                "initializationOptions": options,
                "capabilities": {
                    "general": { "positionEncodings": ["utf-16"] },
                    // Without this it would send diagnostics when it likes; so they are the answer to a question.
                    "textDocument": { "diagnostic": {}, "hover": { "contentFormat": ["plaintext"] } },
                    "experimental": { "serverStatusNotification": true },
                },
            }),
        )?;
        self.send(json!({ "method": "initialized", "params": {} }))
    }

    /// Waits until the crate is loaded: its dependencies, the output of build scripts, the macros.
    fn load(&mut self) -> Result<()> {
        let begun = Instant::now();
        while self.status["quiescent"] != true {
            self.receive(LOADED.saturating_sub(begun.elapsed()), "a loaded crate")?;
        }
        match self.status["health"].as_str() {
            Some("ok") => Ok(()),
            _ => Err(format!(
                "rust-analyzer cannot load the crate: {}{}",
                self.status["message"].as_str().unwrap_or("no reason given"),
                self.logged()
            )),
        }
    }

    /// Asks a question, and returns the answer.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Result<Value> {
        let begun = Instant::now();
        loop {
            self.asked += 1;
            let id = self.asked;
            self.send(json!({ "id": id, "method": method, "params": params }))?;
            let answer = loop {
                let left = PATIENCE.saturating_sub(begun.elapsed());
                if let Some(answer) = self.receive(left, method)?
                    && answer["id"] == id
                {
                    break answer;
                }
            };
            let error = &answer["error"];
            match error["code"].as_i64() {
                None => return Ok(answer["result"].clone()),
                Some(code) if ASK_AGAIN.contains(&code) => {}
                Some(_) => {
                    let logged = self.logged();
                    return Err(format!("{method}: {}{logged}", error["message"]));
                }
            }
        }
    }

    /// Opens a file with this text, or replaces the text of an open one. The file on disk stays as it is.
    pub(crate) fn write(&mut self, file: &Path, version: u32, text: &str) -> Result<()> {
        let uri = uri(file);
        self.send(match version {
            0 => json!({
                "method": "textDocument/didOpen",
                "params": {
                    "textDocument": { "uri": uri, "languageId": "rust", "version": version, "text": text },
                },
            }),
            _ => json!({
                "method": "textDocument/didChange",
                "params": {
                    "textDocument": { "uri": uri, "version": version },
                    "contentChanges": [{ "text": text }],
                },
            }),
        })
    }

    /// Ends the server as an editor does.
    pub(crate) fn end(mut self) -> Result<()> {
        self.ask("shutdown", Value::Null)?;
        self.send(json!({ "method": "exit" }))?;
        let status = self.process.wait(END)?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("rust-analyzer: {status}{}", self.logged())),
        }
    }

    fn send(&mut self, mut message: Value) -> Result<()> {
        message["jsonrpc"] = "2.0".into();
        let text = message.to_string();
        write!(self.input, "Content-Length: {}\r\n\r\n{text}", text.len())
            .and_then(|()| self.input.flush())
            .map_err(|error| format!("rust-analyzer does not read: {error}{}", self.logged()))
    }

    /// Receives one message: an answer is returned, everything else is served here.
    fn receive(&mut self, limit: Duration, awaited: &str) -> Result<Option<Value>> {
        let message = self.messages.recv_timeout(limit).map_err(|error| {
            let what = match error {
                RecvTimeoutError::Timeout => "does not give",
                RecvTimeoutError::Disconnected => "has ended without",
            };
            format!("rust-analyzer {what} {awaited}{}", self.logged())
        })?;
        let params = &message["params"];
        match message["method"].as_str() {
            None => return Ok(Some(message)),
            Some("experimental/serverStatus") => self.status = params.clone(),
            Some("window/logMessage" | "window/showMessage") => {
                let text = params["message"].as_str().unwrap_or_default();
                self.log.push_back(text.to_owned());
                if self.log.len() > LOGGED {
                    self.log.pop_front();
                }
            }
            Some(_) => {}
        }
        // A question of the server: nothing here needs more than an answer.
        if let Some(id) = message.get("id") {
            self.send(json!({ "id": id, "result": null }))?;
        }
        Ok(None)
    }

    /// The end of its log, for an error.
    fn logged(&self) -> String {
        let lines = self.log.iter().map(|line| format!("\n   {line}"));
        lines.collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.process.kill() {
            say::note(error);
        }
    }
}

/// Reads messages on a thread of its own, until the stream ends.
fn read(output: impl Read + Send + 'static) -> Receiver<Value> {
    let (found, messages) = mpsc::channel();
    let mut output = BufReader::new(output);
    thread::spawn(move || {
        while let Some(message) = message(&mut output) {
            if found.send(message).is_err() {
                break;
            }
        }
    });
    messages
}

/// Reads one message: headers, an empty line, and as many bytes as `Content-Length` says.
fn message(output: &mut impl BufRead) -> Option<Value> {
    let mut length = None;
    loop {
        let mut line = String::new();
        if output.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => {
                if let Some(bytes) = line.strip_prefix("Content-Length: ") {
                    length = bytes.parse().ok();
                }
            }
        }
    }
    let mut text = vec![0; length?];
    output.read_exact(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Returns the address of a file. Its path must have no character that an address escapes, such as a space.
pub(crate) fn uri(file: &Path) -> String {
    format!("file://{}", file.display())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::message;

    #[test]
    fn messages_are_as_long_as_their_header_says() {
        let text = "Content-Length: 7\r\nContent-Type: any\r\n\r\n{\"a\":1}Content-Length: 2\r\n\r\n{}Content-";
        let mut output = text.as_bytes();
        assert_eq!(message(&mut output), Some(json!({ "a": 1 })));
        assert_eq!(message(&mut output), Some(json!({})));
        assert_eq!(message(&mut output), None);
    }
}
