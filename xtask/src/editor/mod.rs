//! `cargo xtask editor`: what rust-analyzer shows a person who writes annotated functions.
//!
//! Answers are compared with those on the bare file, the same text without its attributes: rust-analyzer decides what is
//! right, and the attribute may not make it worse.

mod server;
mod text;
mod tools;
mod window;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use self::server::Server;
use self::text::{Place, word_at};
use self::tools::Tools;
use self::window::{Completion, Diagnostic, Window};
use crate::process::run;
use crate::{Result, say, workspace};

/// The opened file, in its crate.
const FILE: &str = "lib.rs";

/// Statements about a value, each half typed. What is offered for the value is the same with and without the attribute.
const ABOUT_VALUES: &[&str] = &["let half = {}.", "{}.", "if {}."];
/// Statements in which a name is due. Nothing that is offered without the attribute is missing with it.
const ABOUT_NAMES: &[&str] = &["let half = ", "ha", "__"];
/// Statement with a mistake. It shows that rust-analyzer looks into annotated bodies at all.
const MISTAKEN: &str = "{}.is_no_method();";

/// Opens the crate in rust-analyzer and checks all that is shown; returns the last line to print.
pub(crate) fn editor() -> Result<String> {
    let begun = Instant::now();
    let tools = Tools::find()?;
    say::step(format_args!("the crate, by cargo and by {}", tools.version));
    say::note(format_args!("std is read in {}", tools.library.display()));
    let folder = workspace::outside("tests/editor", FILE)?;
    // Here cargo shows how far it is; rust-analyzer finds all of it done.
    let mut check = workspace::cargo();
    let check = check.current_dir(&folder).arg("check");
    run("cargo check", check)?;
    let file = folder.join(FILE);
    let server = Server::start(&tools.program, &folder, options(&tools))?;
    let mut trial = Trial::begin(server, &file)?;
    trial.attributes_are_expanded()?;
    trial.healthy_file_has_no_diagnostics()?;
    trial.placeholders_lead_to_arguments()?;
    trial.half_statements_are_as_in_the_bare_file()?;
    trial.window.close()?;
    match trial.wrong {
        0 => Ok(format!(
            "editor: ok — {} comparisons, in {:.0} s",
            trial.compared,
            begun.elapsed().as_secs_f64()
        )),
        wrong => Err(format!("{wrong} of {} comparisons, see above", trial.compared)),
    }
}

/// Returns the settings: rust-analyzer's own, except what costs time and changes no answer here.
fn options(tools: &Tools) -> Value {
    json!({
        "cachePriming": { "enable": false },
        "cargo": { "sysrootSrc": tools.library },
        // What rustc says of mistakes is the subject of `tests/mistakes`.
        "checkOnSave": false,
        // More than most people see: unknown names and methods, and most wrong types.
        "diagnostics": { "experimental": { "enable": true } },
    })
}

/// An opened file, and how often rust-analyzer showed what it should.
struct Trial {
    window: Window,
    text: String,
    /// The text without its attributes.
    bare: String,
    compared: usize,
    wrong: usize,
}

impl Trial {
    fn begin(server: Server, file: &Path) -> Result<Self> {
        let text = workspace::read(file)?;
        Ok(Self {
            window: Window::open(server, file, &text)?,
            bare: text::bare(&text),
            text,
            compared: 0,
            wrong: 0,
        })
    }

    /// Counts a comparison, and prints one that failed.
    fn judge(&mut self, holds: bool, wrong: impl Display) {
        self.compared += 1;
        if !holds {
            self.wrong += 1;
            say::note(format_args!("WRONG {wrong}"));
        }
    }

    /// Checks that no attribute is left as it is: a rust-analyzer without macros would pass most of what follows.
    fn attributes_are_expanded(&mut self) -> Result<()> {
        let attributes = text::attributes(&self.text);
        say::step(format_args!("{} attributes are expanded", attributes.len()));
        for at in attributes {
            let expansion = self.window.expansion(at)?;
            let expanded = expansion.contains("__private");
            self.judge(expanded, format_args!("line {}: `{expansion}`", at.line + 1));
        }
        Ok(())
    }

    fn healthy_file_has_no_diagnostics(&mut self) -> Result<()> {
        for (title, text) in [("annotated", self.text.clone()), ("bare", self.bare.clone())] {
            self.window.show(&text)?;
            let found = self.window.diagnostics()?;
            say::step(format_args!(
                "{} diagnostics on {} {title} lines",
                found.len(),
                text.lines().count()
            ));
            self.judge(found.is_empty(), format_args!("{found:?}"));
        }
        Ok(())
    }

    /// Checks hover and "go to definition" inside the templates. For `<order.id>` both lead to `order` and to `id`.
    fn placeholders_lead_to_arguments(&mut self) -> Result<()> {
        let text = self.text.clone();
        self.window.show(&text)?;
        let placeholders = text::placeholders(&text);
        say::step(format_args!("{} placeholders lead to their arguments", placeholders.len()));
        for placeholder in placeholders {
            let hover = self.window.hover(placeholder.at)?;
            let definitions = self.window.definitions(placeholder.at)?;
            for (number, part) in placeholder.path.split('.').enumerate() {
                // The head is an argument of the function below; a field is declared anywhere.
                let leads = definitions.iter().any(|&at| {
                    word_at(&text, at) == part
                        && (number > 0 || text::function_at(&text, at.line) == placeholder.function)
                });
                let place = format!("line {} `<{}>`", placeholder.at.line + 1, placeholder.path);
                self.judge(
                    leads,
                    format_args!("{place}: no definition of `{part}` in {definitions:?}"),
                );
                self.judge(
                    hover.contains(&format!("{part}: ")),
                    format_args!("{place}: no type of `{part}` in `{hover}`"),
                );
            }
            let shown: Vec<_> = hover.lines().filter(|line| line.contains(": ")).collect();
            say::note(format_args!(
                "{}: `<{}>` is {}",
                placeholder.function,
                placeholder.path,
                shown.join(", ")
            ));
        }
        Ok(())
    }

    fn half_statements_are_as_in_the_bare_file(&mut self) -> Result<()> {
        let (text, bare) = (self.text.clone(), self.bare.clone());
        let places = text::places(&text);
        let statements = ABOUT_VALUES.iter().chain(ABOUT_NAMES).chain([&MISTAKEN]);
        for statement in statements {
            say::step(format_args!(
                "`{}` in {} places",
                statement.replace("{}", "…"),
                places.len()
            ));
            let (mut rows, mut errors, mut bare_errors) = (0, 0, 0);
            for place in &places {
                let shown = self.typed(&text, place, statement)?;
                let bare = self.typed(&bare, place, statement)?;
                rows += shown.rows.len();
                errors += shown.errors();
                bare_errors += bare.errors();
                self.compare(place.function, statement, &shown, &bare);
            }
            say::note(format_args!(
                "{rows} completions; {errors} errors, and {bare_errors} without the attribute"
            ));
        }
        Ok(())
    }

    /// Types a statement, and returns what is shown then.
    fn typed(&mut self, text: &str, place: &Place<'_>, statement: &str) -> Result<Shown> {
        let statement = statement.replace("{}", place.word);
        let (text, at) = text::typed(text, place.line, &statement);
        self.window.show(&text)?;
        Ok(Shown { rows: self.window.completions(at)?, marks: self.window.diagnostics()? })
    }

    fn compare(&mut self, function: &str, statement: &str, shown: &Shown, bare: &Shown) {
        let (more, missing) = (apart(&shown.marks, &bare.marks), apart(&bare.marks, &shown.marks));
        self.judge(
            more.is_empty() && missing.is_empty(),
            format_args!("{function}: more diagnostics: {more:?}, missing: {missing:?}"),
        );
        if statement == MISTAKEN {
            let marked = shown.errors() > 0;
            self.judge(marked, format_args!("{function}: the mistake is no error"));
        }

        // `#[async_trait]` has names of its own, with the attribute and without.
        let more: Vec<_> = shown.rows.difference(&bare.rows).collect();
        let missing: Vec<_> = bare.rows.difference(&shown.rows).collect();
        let ours: Vec<_> = more.iter().filter(|row| row.is_ours()).collect();
        self.judge(
            ours.is_empty(),
            format_args!("{function}: offers names of expansions: {ours:?}"),
        );
        let may_be_more = !ABOUT_VALUES.contains(&statement);
        self.judge(
            !shown.rows.is_empty() && missing.is_empty() && (may_be_more || more.is_empty()),
            format_args!(
                "{function}: {} completions; more: {more:?}, missing: {missing:?}",
                shown.rows.len()
            ),
        );
    }
}

/// What is shown while a statement is half typed.
struct Shown {
    rows: BTreeSet<Completion>,
    marks: Vec<Diagnostic>,
}

impl Shown {
    fn errors(&self) -> usize {
        self.marks.iter().filter(|mark| mark.is_error).count()
    }
}

/// Returns the marks that the others lack. Their lines may differ: of a block, rust-analyzer marks one brace or the other.
fn apart<'a>(marks: &'a [Diagnostic], others: &[Diagnostic]) -> Vec<&'a str> {
    let mut others: Vec<_> = others.iter().collect();
    let mut apart = Vec::new();
    for mark in marks {
        match others.iter().position(|other| other.is_like(mark)) {
            Some(found) => drop(others.swap_remove(found)),
            None => apart.push(mark.message.as_str()),
        }
    }
    apart
}
