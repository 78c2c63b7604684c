//! Codes of warnings and errors: each event of the library has one, and the page of codes lists it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::tidy::{read, root, sources, without_tests};

/// The texts of the library's sources, without their unit tests.
fn own_texts() -> Vec<(PathBuf, String)> {
    let files = sources(&root().join("runtime/src")).into_iter();
    let own = |file: PathBuf| {
        let text = without_tests(&read(&file)).to_owned();
        (file, text)
    };
    files.map(own).collect()
}

/// The arguments of each call of a macro.
fn calls<'a>(source: &'a str, name: &str) -> Vec<&'a str> {
    let begin = format!("{name}!(");
    let found = source.match_indices(&begin);
    found.map(|(at, _)| arguments(&source[at + begin.len()..])).collect()
}

/// What stands before the parenthesis that closes the call.
fn arguments(rest: &str) -> &str {
    let (mut depth, mut quoted, mut escaped) = (1, false, false);
    for (at, c) in rest.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &rest[..at];
        }
    }
    panic!("no end: {rest}");
}

/// Each code with its level, as the page lists it.
fn page() -> BTreeSet<(String, String)> {
    let page = read(&root().join("runtime/docs/codes.md"));
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let mut cells = row.split(" | ");
        let code = cells.next().expect("a code").trim_end_matches('`');
        let level = cells.next().expect("a level");
        assert_eq!(cells.count(), 2, "what has happened, and what to do: {row}");
        (code.to_owned(), level.to_owned())
    })
    .collect()
}

#[test]
fn every_warning_and_error_has_a_code_of_the_page() {
    let mut used = BTreeSet::new();
    for (path, source) in own_texts() {
        for level in ["warn", "error"] {
            for call in calls(&source, level) {
                let (_, code) = call
                    .split_once("code = \"")
                    .unwrap_or_else(|| panic!("{}: no `code`: {call}", path.display()));
                let (code, _) = code.split_once('"').expect("the code's end");
                used.insert((code.to_owned(), level.to_owned()));
            }
        }
    }
    let page = page();
    let unlisted: Vec<_> = used.difference(&page).collect();
    assert!(unlisted.is_empty(), "not in runtime/docs/codes.md: {unlisted:?}");
    let unused: Vec<_> = page.difference(&used).collect();
    assert!(unused.is_empty(), "no event has it: {unused:?}");
}

#[test]
fn arguments_of_an_event_end_where_its_call_does() {
    let source = r#"warn!(code = "a.b", "says ) and \" (f)", f(1)); error!(x); warn!(y)"#;
    let found = [r#"code = "a.b", "says ) and \" (f)", f(1)"#, "y"];
    assert_eq!(calls(source, "warn"), found);
}
