//! Window of the editor: one open file, and what rust-analyzer shows in it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::server::{Server, uri};
use super::text::Position;
use crate::Result;

/// How the mark begins that repeats a syntax error inside an attribute's item. Every attribute has it, and only among the
/// experimental diagnostics.
const REPEATED: &str = "Syntax Error in Expansion: ";

pub(crate) struct Window {
    server: Server,
    file: PathBuf,
    /// How many texts were shown.
    texts: u32,
}

/// Mark under a part of the text, with its message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Diagnostic {
    /// Where it begins; from 0, as in the protocol.
    pub(crate) line: u64,
    pub(crate) is_error: bool,
    pub(crate) code: String,
    pub(crate) message: String,
}

/// Row of a completion's list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Completion {
    pub(crate) label: String,
    /// Type, or path.
    pub(crate) detail: String,
}

impl Window {
    pub(crate) fn open(server: Server, file: &Path, text: &str) -> Result<Self> {
        let mut window = Self { server, file: file.to_owned(), texts: 0 };
        window.show(text)?;
        Ok(window)
    }

    /// Replaces the text, as if it were typed. The file on disk stays as it is.
    pub(crate) fn show(&mut self, text: &str) -> Result<()> {
        self.server.write(&self.file, self.texts, text)?;
        self.texts += 1;
        Ok(())
    }

    /// Returns all marks but repeated ones, sorted by line.
    pub(crate) fn diagnostics(&mut self) -> Result<Vec<Diagnostic>> {
        let document = json!({ "textDocument": { "uri": uri(&self.file) } });
        let answer = self.server.ask("textDocument/diagnostic", document)?;
        let items = answer["items"].as_array();
        let items = items.ok_or_else(|| format!("no list of diagnostics: {answer}"))?;
        let mut found: Vec<_> = items.iter().map(diagnostic).collect();
        found.retain(|mark| !mark.message.starts_with(REPEATED));
        found.sort();
        Ok(found)
    }

    /// Returns what is offered for the word at a place.
    pub(crate) fn completions(&mut self, at: Position) -> Result<BTreeSet<Completion>> {
        let answer = self.ask_at("textDocument/completion", at)?;
        let items = answer.get("items").unwrap_or(&answer).as_array();
        let row = |item: &Value| Completion {
            label: text(&item["label"]),
            detail: text(&item["detail"]),
        };
        Ok(items.into_iter().flatten().map(row).collect())
    }

    /// Returns the text that is shown over a place.
    pub(crate) fn hover(&mut self, at: Position) -> Result<String> {
        let answer = self.ask_at("textDocument/hover", at)?;
        Ok(text(&answer["contents"]["value"]))
    }

    /// Returns where "go to definition" leads from a place, as far as it is in this file.
    pub(crate) fn definitions(&mut self, at: Position) -> Result<Vec<Position>> {
        let answer = self.ask_at("textDocument/definition", at)?;
        let here = uri(&self.file);
        let start = |place: &Value| {
            let start = &place["range"]["start"];
            let number = |value: &Value| usize::try_from(value.as_u64()?).ok();
            (place["uri"] == *here).then_some(())?;
            Some(Position {
                line: number(&start["line"])?,
                character: number(&start["character"])?,
            })
        };
        let places = answer.as_array().into_iter().flatten();
        Ok(places.filter_map(start).collect())
    }

    /// Returns what the attribute at a place expands to; empty if it is no macro.
    pub(crate) fn expansion(&mut self, at: Position) -> Result<String> {
        let answer = self.ask_at("rust-analyzer/expandMacro", at)?;
        Ok(text(&answer["expansion"]))
    }

    /// Closes the editor.
    pub(crate) fn close(self) -> Result<()> {
        self.server.end()
    }

    fn ask_at(&mut self, method: &str, at: Position) -> Result<Value> {
        let params = json!({
            "textDocument": { "uri": uri(&self.file) },
            "position": { "line": at.line, "character": at.character },
        });
        self.server.ask(method, params)
    }
}

fn diagnostic(item: &Value) -> Diagnostic {
    Diagnostic {
        line: item["range"]["start"]["line"].as_u64().unwrap_or_default(),
        // The protocol's number for an error.
        is_error: item["severity"] == 1,
        code: text(&item["code"]),
        message: text(&item["message"]),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Diagnostic {
    /// Returns true if the other says the same, wherever it stands.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let said = |it: &Self| (it.is_error, it.code.clone(), it.message.clone());
        said(self) == said(other)
    }
}

impl Completion {
    /// Returns true for a name that only expansions may use.
    pub(crate) fn is_ours(&self) -> bool {
        [&self.label, &self.detail].iter().any(|text| text.contains("__"))
    }
}
