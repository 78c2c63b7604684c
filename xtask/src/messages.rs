//! The book's page of the compiler's messages, made of the cases in `tests/ui`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::{Result, workspace};

/// Groups of the page: title, what its mistakes have in common, and its cases in order.
const GROUPS: &[(&str, &str, &[&str])] = &[
    (
        "The attribute",
        "All mistakes of one attribute are reported at once, each where it was typed; the function stays, so that its \
         callers are no errors.",
        &[
            "three-mistakes",
            "missing-name",
            "name-twice",
            "name-after-option",
            "missing-comma",
            "item-kept",
            "name-unreadable",
            "not-a-lock-name",
            "name-moves-an-argument",
            "attribute-twice",
            "not-a-fn",
            "on-a-trait",
        ],
    ),
    (
        "Templates",
        "A template is `segment/segment/…`, each of literal text, a placeholder, or both.",
        &[
            "unknown-placeholder",
            "no-such-argument",
            "unknown-field",
            "unclosed-placeholder",
            "stray-bracket",
            "empty-placeholder",
            "bad-placeholder",
            "braces",
            "typed-placeholder",
            "placeholder-keyword",
            "placeholder-on-self",
            "placeholder-on-underscore",
            "two-placeholders-in-one-segment",
            "empty-name",
            "doubled-slash",
            "leading-slash",
            "trailing-slash",
            "character-outside-alphabet",
            "name-too-long",
            "not-a-lock-key",
            "float-in-a-name",
            "option-in-a-name",
            "collection-in-a-name",
        ],
    ),
    (
        "Options",
        "Options come after the name, as `option = value`.",
        &[
            "unknown-option",
            "option-by-another-name",
            "misspelt-option",
            "word-near-an-option",
            "duplicate-option",
            "option-without-value",
            "flag-with-value",
            "flag-for-an-argument",
            "misspelt-flag",
            "value-not-a-string",
            "bad-duration",
            "duration-out-of-range",
            "hold-limit-of-nothing",
            "kept-longer-than-held",
            "deadline-not-an-instant",
            "deadline-without-a-wait",
            "when-not-a-bool",
            "detach-borrows",
            "detach-not-send",
            "unknown-on-held",
            "unknown-on-lost",
            "unknown-release",
            "permits-out-of-range",
            "permits-not-a-number",
            "limit-of-another-type",
            "limit-unknown",
            "limit-half-typed",
            "shared-with-permits",
            "shared-with-a-value",
            "cannot-skip",
            "cannot-skip-converted",
            "map-err-and-on-error",
            "map-err-without-result",
            "wrong-map-err",
            "wrong-on-error",
            "not-locks",
            "relative-crate-path",
            "crate-not-found",
            "crate-without-conversion",
        ],
    ),
    (
        "The function",
        "An `async fn` whose answer can say that there was no lock; errors in its body are rustc's own, where they are.",
        &[
            "not-async",
            "below-tokio-main",
            "async-trait-pattern",
            "future-not-one-block",
            "const-fn",
            "extern-fn",
            "method-without-body",
            "no-return-type",
            "return-type-not-a-result",
            "missing-from-lock-error",
            "never-returns",
            "forgotten-tail",
            "wrong-tail-type",
            "wrong-early-return",
            "wrong-question-mark",
            "moved-into-the-body",
            "body-not-send",
            "implementation-detail",
        ],
    ),
    (
        "`impl` blocks",
        "Every method with a receiver takes the lock, or says `unlocked`.",
        &[
            "impl-forgotten-method",
            "impl-unlocked-misspelt",
            "impl-unlocked-and-more",
            "unlocked-outside-an-impl",
            "impl-without-name",
            "impl-mistake-in-its-name",
            "impl-name-not-for-a-method",
            "impl-unknown-field",
            "impl-options-contradict",
            "impl-limit-of-another-type",
            "impl-detach-borrows",
            "impl-calls-a-macro",
            "impl-nothing-to-lock",
        ],
    ),
    (
        "Proofs",
        "`guard = order` binds the proof of the lock, which a helper may ask for as `&Locked<Order>`; it stays in the body.",
        &[
            "helper-without-the-lock",
            "helper-under-another-lock",
            "helper-with-a-readers-proof",
            "helper-with-a-permit",
            "helper-with-a-templates-proof",
            "proof-in-a-spawned-task",
            "proof-after-the-body",
            "proof-returned",
            "proof-stored",
            "proof-sent",
            "proof-cloned",
            "proof-made-by-hand",
            "proof-outlives-its-guard",
            "proof-of-a-readers-guard",
            "guard-with-when",
            "guard-with-a-wrong-number",
            "guard-not-a-variable",
            "guard-named-twice",
            "guard-moves-a-name",
        ],
    ),
    (
        "Declared names",
        "What `lock_names!` and `#[derive(LockKey)]` refuse.",
        &[
            "not-declared",
            "declared-names-overlap",
            "declared-name-is-a-prefix",
            "declared-name-misused",
            "declared-twice",
            "declared-without-type",
            "declared-type-unknown",
            "declared-type-refused",
            "declared-placeholder-twice",
            "declared-template-mistakes",
            "declared-debug-derived",
            "declaration-unreadable",
            "derive-key-of-many-fields",
            "derive-key-of-variants",
            "derive-key-around-no-key",
            "derive-key-option",
        ],
    ),
];

/// First lines of the page.
const HEAD: &str = "\
# The compiler's messages

Everything that can be known while compiling is refused while compiling. Each entry is a whole mistake and the whole answer
of rustc; imports and `fn main` are left out, as is the note that an error comes out of a macro.
";

/// Writes the page.
pub(crate) fn page() -> Result<String> {
    let folder = workspace::root().join("tests/ui");
    let mut left = cases(&folder)?;
    let mut text = HEAD.to_owned();
    for (title, what, cases) in GROUPS {
        if cases.is_empty() {
            continue;
        }
        // Writing to a string does not fail.
        let _ = write!(text, "\n## {title}\n\n{what}\n");
        for case in *cases {
            if !left.remove(*case) {
                return Err(format!(
                    "tests/ui has no `{case}`, of which {} speaks",
                    file!()
                ));
            }
            let _ = write!(
                text,
                "\n### {}\n\n```rust,compile_fail\n{}\n```\n\n```text\n{}\n```\n",
                heading(case),
                code(&read(&folder.join(format!("{case}.rs")))?),
                answer(&read(&folder.join(format!("{case}.stderr")))?)
            );
        }
    }
    if left.is_empty() {
        Ok(text)
    } else {
        Err(format!(
            "say in GROUPS of {} where these belong: {left:?}",
            file!()
        ))
    }
}

/// Lists the cases: the files that fail to compile with an error of their own.
fn cases(folder: &Path) -> Result<BTreeSet<String>> {
    let io = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut cases = BTreeSet::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
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
    let kept = stderr
        .lines()
        .filter(|line| !line.contains("= note: this error originates in the "));
    kept.collect::<Vec<_>>().join("\n").trim().to_owned()
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_every_case() {
        let page = page().expect("every case in a group");
        let cases = cases(&workspace::root().join("tests/ui")).expect("cases");
        assert_eq!(page.matches("\n### ").count(), cases.len());
    }

    #[test]
    fn shows_only_the_mistake() {
        let source = "use std::rc::Rc;\n\nuse a::b;\n\n#[etcd_locked(\"a\")]\nfn f() {\n    use c::d;\n}\n\nfn main() {}\n";
        assert_eq!(
            code(source),
            "#[etcd_locked(\"a\")]\nfn f() {\n    use c::d;\n}"
        );
        assert_eq!(heading("const-fn"), "Const fn");
    }
}
