//! Names that the pages of docs show: no two of them may be the same lock by accident, or one below the other.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::overlap::{Overlap, Segment, overlap, segments};
use crate::template::Template;

/// Pages and folders of sources whose doc comments are pages.
const PAGES: &[&str] = &[
    "README.md",
    "PROTOCOL.md",
    "book/src",
    "cli/JSON.md",
    "examples/README.md",
    "examples/interop/README.md",
    "ops/README.md",
    "runtime/docs/answers.md",
    "runtime/docs/codes.md",
    "runtime/docs/options.md",
    "cli/src",
    "macros/src/lib.rs",
    "runtime/src",
];

/// Pages that must show names, and how many at least: else the search below misses them.
const MOST_READ: &[(&str, usize)] = &[
    ("README.md", 3),
    ("book/src/names.md", 15),
    ("book/src/options.md", 15),
    ("macros/src/lib.rs", 5),
    ("runtime/src/lib.rs", 8),
    ("runtime/src/api/names.rs", 3),
    ("runtime/docs/options.md", 10),
    ("cli/src/options.rs", 1),
];

/// A lock name as a page shows it.
struct Shown {
    /// A template, with types or without, or a name without placeholders.
    text: String,
    /// True for a name as it is at run time, `orders/7`: one of those that a template stands for.
    rendered: bool,
    page: String,
    line: usize,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ({}:{})", self.text, self.page, self.line)
    }
}

impl Shown {
    /// Reads a name; `None` if the text is none.
    fn read(text: &str, rendered: bool, line: usize) -> Option<Self> {
        let shown = Self { text: text.to_owned(), rendered, page: String::new(), line };
        let good = shown.template().mistakes.is_empty();
        good.then_some(shown)
    }

    fn template(&self) -> Template<'_> {
        let typed = Template::parse_typed(&self.text);
        if typed.mistakes.is_empty() { typed } else { Template::parse(&self.text) }
    }

    fn segments(&self) -> Vec<Segment> {
        segments(&self.text, &self.template())
    }

    /// Returns the template without the names and types of its placeholders: pages may leave types out.
    fn meant(&self) -> String {
        let template = self.template();
        let mut meant = self.text.clone();
        for placeholder in template.placeholders.iter().rev() {
            meant.replace_range(placeholder.range.clone(), "<>");
        }
        meant
    }

    /// Says what is wrong with two names.
    fn clash(&self, other: &Self) -> Option<String> {
        if self.meant() == other.meant() {
            return None;
        }
        let how = match overlap(&self.segments(), &other.segments())? {
            Overlap::Same if self.rendered || other.rendered => return None,
            Overlap::Same => "can be the same name as",
            Overlap::Prefix => "is a path-prefix of",
            Overlap::Extends => "lies below",
        };
        Some(format!("{self} {how} {other}"))
    }
}

/// Returns every pair of names that clash.
fn clashes(names: &[Shown]) -> Vec<String> {
    let pairs = names.iter().enumerate();
    pairs.flat_map(|(n, one)| names[n + 1..].iter().filter_map(|other| one.clash(other))).collect()
}

/// Finds the names of a page, wherever code, commands and tables use one.
fn names(page: &str) -> Vec<Shown> {
    let mut found = Vec::new();
    let mut words: Vec<(usize, &str)> = Vec::new();
    let (mut fenced, mut wrong, mut table) = (false, false, false);
    for (line, text) in (1..).zip(page.lines()) {
        let text = text.trim();
        if let Some(kind) = text.strip_prefix("```") {
            fenced = !fenced;
            wrong = fenced && kind.contains("compile_fail");
        }
        if wrong {
            continue;
        }
        found.extend(literals(line, text));
        words.extend(text.split_whitespace().map(|word| (line, word)));
        // The table that `ls` and `top` print.
        let first = text.split_whitespace().next();
        match first {
            Some("NAME") => table = fenced,
            Some(name) if table && !text.starts_with("```") => {
                found.extend(Shown::read(name, true, line));
            }
            _ => table = false,
        }
    }
    found.extend(commands(&words));
    found
}

/// Finds names among the string literals of a line.
fn literals(line: usize, text: &str) -> Vec<Shown> {
    let mut found = Vec::new();
    let parts: Vec<&str> = text.split('"').collect();
    let mut in_attribute = false;
    for at in (1..parts.len().saturating_sub(1)).step_by(2) {
        let (before, literal, after) = (parts[at - 1], parts[at], parts[at + 1]);
        let called = |by: &[&str]| by.iter().any(|by| before.ends_with(by));
        in_attribute = called(&["etcd_locked("]) || in_attribute && before == ", ";
        let declared = before.ends_with(" = ") && after.starts_with(';');
        let by_hand = called(&["lock(", ".and("]);
        // `format!("orders/{id}")`: what stands in braces is a placeholder.
        let formatted = called(&["format!("]).then(|| literal.replace('{', "<").replace('}', ">"));
        let literal = formatted.as_deref().unwrap_or(literal);
        let placeholder = literal.contains('<');
        if in_attribute || declared || by_hand || placeholder {
            let rendered = by_hand && !placeholder;
            found.extend(Shown::read(literal, rendered, line));
        }
    }
    found
}

/// Finds names in commands, and examples of names in help texts.
fn commands(words: &[(usize, &str)]) -> Vec<Shown> {
    let mut found = Vec::new();
    for three in words.windows(3) {
        let [(_, first), (_, second), (line, name)] = three else {
            continue;
        };
        let name = name.trim_matches(|c: char| "`,.;)'".contains(c));
        let name = match (first.trim_start_matches('`'), *second) {
            ("etcd-locked", "who" | "kick" | "exec") if name.contains('/') => name,
            ("etcdctl", "lock") => name.strip_prefix("locks/").unwrap_or_default(),
            ("such", "as") if name.contains('/') => name,
            _ => continue,
        };
        found.extend(Shown::read(name, true, *line));
    }
    found
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace").to_owned()
}

/// Reads a page: Markdown as it is, of a source the lines of its doc comments.
fn read(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    if file.extension().is_some_and(|it| it == "md") {
        return text;
    }
    let docs = text.lines().map(|line| {
        let line = line.trim_start();
        let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        doc.unwrap_or_default()
    });
    docs.flat_map(|line| [line, "\n"]).collect()
}

/// Lists the files of a page or a folder of pages.
fn files(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut found: Vec<PathBuf> =
        entries.flat_map(|entry| files(&entry.expect("a readable entry").path())).collect();
    found.retain(|file| file.extension().is_some_and(|it| it == "rs" || it == "md"));
    found.sort();
    found
}

#[test]
fn names_of_the_docs_do_not_overlap() {
    let mut shown = Vec::new();
    let mut most_read = MOST_READ.to_vec();
    for page in PAGES.iter().flat_map(|page| files(&root().join(page))) {
        let mut names = names(&read(&page));
        let page = page.strip_prefix(root()).expect("below the root");
        for name in &mut names {
            name.page = page.display().to_string();
        }
        if let Some(at) = most_read.iter().position(|(it, _)| Path::new(it) == page) {
            let (_, least) = most_read.remove(at);
            let found: Vec<_> = names.iter().map(Shown::to_string).collect();
            assert!(found.len() >= least, "{}: only {found:?}", page.display());
        }
        shown.append(&mut names);
    }
    assert!(most_read.is_empty(), "no such page: {most_read:?}");
    let clashes = clashes(&shown);
    assert!(clashes.is_empty(), "{}", clashes.join("\n"));
}

#[test]
fn every_example_of_the_book_is_compiled() {
    let list = fs::read_to_string(root().join("tests/src/book.rs")).expect("the list");
    for page in files(&root().join("book/src")) {
        let name = page.strip_prefix(root()).expect("below the root").display().to_string();
        let listed = list.contains(&format!("\"../../{name}\""));
        assert!(listed || !read(&page).contains("```rust"), "tests/src/book.rs has no {name}");
    }
}

#[test]
fn a_name_is_found_wherever_it_is_used() {
    let page = r##"
Text with `#[etcd_locked("a/<from>", "b", wait = "5s")]` and `"shards/<self.shard>"`, "not one", `etcdctl lock
locks/c/42`, behind which we wait.
```rust
    pub Order = "orders/<id: &OrderId>";
    #[etcd_locked("nightly", on_held = "skip")]
let held = etcd_locked::lock(format!("d/{id}")).and("e/1").await?;
```
```compile_fail
#[etcd_locked("wrong")]
```
```console
$ etcd-locked who f/7      # the whole queue
NAME        MODE
g/7         exclusive
imports     shared
```
A name such as jobs/backup. But `etcd-locked exec` alone shows none.
"##;
    let found: Vec<_> = names(page).into_iter().map(|it| it.text).collect();
    let wanted = [
        "a/<from>",
        "b",
        "shards/<self.shard>",
        "orders/<id: &OrderId>",
        "nightly",
        "d/<id>",
        "e/1",
        "g/7",
        "imports",
        "c/42",
        "f/7",
        "jobs/backup",
    ];
    assert_eq!(found, wanted);
}

#[test]
fn names_that_clash_are_found() {
    let clash = |one: &str, other: &str| {
        let read = |text: &str, line| {
            let rendered = !text.starts_with('"');
            let read = Shown::read(text.trim_matches('"'), rendered, line).expect("a name");
            Shown { page: "README.md".to_owned(), ..read }
        };
        clashes(&[read(one, 1), read(other, 2)])
    };
    assert_eq!(
        clash(r#""accounts/<from: &Id>/to/<to: &Id>""#, r#""accounts/<id>""#),
        [
            "`accounts/<from: &Id>/to/<to: &Id>` (README.md:1) lies below `accounts/<id>` (README.md:2)"
        ]
    );
    for (one, other) in [
        (r#""orders/<id>""#, r#""orders/archive""#),
        (r#""orders/<id>""#, "orders/7/lines"),
        ("orders", "orders/7"),
    ] {
        assert_eq!(clash(one, other).len(), 1, "{one} {other}");
    }
    for (one, other) in [
        (r#""orders/<id>""#, r#""orders/<order: u64>""#),
        (r#""orders/<id>""#, "orders/7"),
        ("orders/7", "orders/8"),
        (r#""orders/<id: u64>""#, r#""orders/archive""#),
    ] {
        assert_eq!(clash(one, other), [""; 0], "{one} {other}");
    }
}
