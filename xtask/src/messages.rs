//! The book's page of the compiler's messages, made of the cases in `tests/mistakes/ui`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use crate::{Result, workspace};

/// Groups of the page, between empty lines: title, what its mistakes have in common, and its cases in order.
const GROUPS: &str = include_str!("mistakes.txt");
const GROUPS_FILE: &str = "xtask/src/mistakes.txt";

/// First lines of the page.
const HEAD: &str = "\
# The compiler's messages

Everything that can be known while compiling is refused while compiling. Each entry is a whole mistake and the whole answer
of rustc; imports and `fn main` are left out, as is the note that an error comes out of a macro.
";

/// Writes the page.
pub(crate) fn page() -> Result<String> {
    let folder = workspace::root().join("tests/mistakes/ui");
    let mut left = cases(&folder)?;
    let mut text = HEAD.to_owned();
    for group in GROUPS.trim_end().split("\n\n") {
        let mut lines = group.splitn(3, '\n').map(|line| line.trim_start_matches("# "));
        let mut line = || lines.next().unwrap_or_default();
        // Writing to a string does not fail.
        let _ = write!(text, "\n## {}\n\n{}\n", line(), line());
        for case in line().split_whitespace() {
            if !left.remove(case) {
                return Err(format!("tests/mistakes/ui has no `{case}` of {GROUPS_FILE}"));
            }
            let _ = write!(
                text,
                "\n### {}\n\n```rust,compile_fail\n{}\n```\n\n```text\n{}\n```\n",
                heading(case),
                code(&workspace::read(folder.join(format!("{case}.rs")))?),
                answer(&workspace::read(folder.join(format!("{case}.stderr")))?)
            );
        }
    }
    if left.is_empty() {
        Ok(text)
    } else {
        Err(format!("say in {GROUPS_FILE} where these belong: {left:?}"))
    }
}

/// Lists the cases: the files that fail to compile with an error of their own.
fn cases(folder: &Path) -> Result<BTreeSet<String>> {
    let mut cases = BTreeSet::new();
    for path in workspace::entries(folder)? {
        if path.extension().is_some_and(|it| it == "stderr")
            && let Some(case) = path.file_stem()
        {
            cases.insert(case.to_string_lossy().into_owned());
        }
    }
    Ok(cases)
}

/// Makes a heading: `misspelt-option` → `Misspelt option`.
fn heading(case: &str) -> String {
    let mut words = case.replace('-', " ");
    if let Some(first) = words.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    words
}

/// Returns the mistake itself: the source without imports, header and `fn main`.
fn code(source: &str) -> String {
    let kept = source.lines().filter(|line| {
        !(line.starts_with("use ") || line.starts_with("//!") || *line == "fn main() {}")
    });
    let mut lines: Vec<&str> = Vec::new();
    for line in kept {
        // One empty line where there were several, and none at the start.
        if !(line.is_empty() && lines.last().is_none_or(|last| last.is_empty())) {
            lines.push(line);
        }
    }
    lines.join("\n").trim_end().to_owned()
}

fn answer(stderr: &str) -> String {
    let kept =
        stderr.lines().filter(|line| !line.contains("= note: this error originates in the "));
    kept.collect::<Vec<_>>().join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_every_case() {
        let page = page().expect("every case in a group");
        let cases = cases(&workspace::root().join("tests/mistakes/ui")).expect("cases");
        assert_eq!(page.matches("\n### ").count(), cases.len());
    }

    #[test]
    fn shows_only_the_mistake() {
        let source = "use std::rc::Rc;\n\nuse a::b;\n\n#[etcd_locked(\"a\")]\nfn f() {\n    use c::d;\n}\n\nfn main() {}\n";
        assert_eq!(code(source), "#[etcd_locked(\"a\")]\nfn f() {\n    use c::d;\n}");
        assert_eq!(heading("const-fn"), "Const fn");
    }
}
