//! Codes of warnings and errors: each event of the library has a code, and the page of codes lists it.

use std::collections::BTreeSet;

use crate::tidy::{code, sources};

#[test]
fn every_warning_and_error_has_a_code_of_the_page() {
    let mut used = BTreeSet::new();
    for (file, text) in sources("runtime/src") {
        let code = code(&text);
        for level in ["warn", "error"] {
            for event in code.split(&format!("tracing::{level}!(")).skip(1) {
                let event = event.split("tracing::").next().unwrap_or_default();
                let (_, rest) = event
                    .split_once("code = \"")
                    .unwrap_or_else(|| panic!("{}: no `code`: {event}", file.display()));
                let (code, _) = rest.split_once('"').expect("the code's end");
                used.insert((code.to_owned(), level.to_owned()));
            }
        }
    }
    let rows = include_str!("../../runtime/docs/codes.md").lines();
    let page = rows.filter_map(|line| line.strip_prefix("| `")).map(|row| {
        let cells: Vec<_> = row.split(" | ").collect();
        let [code, level, _happened, _remedy] = cells[..] else { panic!("four cells: {row}") };
        (code.trim_end_matches('`').to_owned(), level.to_owned())
    });
    assert_eq!(used, page.collect());
}
