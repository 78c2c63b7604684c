//! The repository keeps its own rules.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ lies in the workspace")
        .to_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// All `.rs` files below a folder.
fn sources(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|x| x == "rs") {
            found.insert(path);
        }
    }
    found
}

/// The files a crate root reaches by `mod x;`.
fn reachable(file: &Path, folder: &Path, found: &mut BTreeSet<PathBuf>) {
    found.insert(file.to_owned());
    let mut named = None;
    let text = read(file);
    for line in text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("//"))
    {
        if let Some(path) = line.strip_prefix("#[path = \"") {
            named = path.strip_suffix("\"]").map(ToOwned::to_owned);
            continue;
        }
        let Some((_, module)) = line
            .strip_suffix(';')
            .and_then(|line| line.split_once("mod "))
        else {
            continue;
        };
        let file = named.take().unwrap_or_else(|| format!("{module}.rs"));
        let inner = folder.join(module);
        let at = if folder.join(&file).exists() {
            folder.join(&file)
        } else {
            inner.join("mod.rs")
        };
        assert!(
            at.exists(),
            "`mod {module};` has no file in {}",
            folder.display()
        );
        let inner = match at.ends_with("mod.rs") {
            true => at.parent().unwrap_or(folder).to_owned(),
            false => inner,
        };
        reachable(&at, &inner, found);
    }
}

#[test]
fn every_source_file_is_reachable() {
    for (start, others) in [
        ("macros/src/lib.rs", &[][..]),
        ("runtime/src/lib.rs", &[]),
        ("embedded/src/lib.rs", &["embedded/src/main.rs"]),
        ("benches/src/main.rs", &[]),
        ("xtask/src/main.rs", &[]),
        ("tests/differential/main.rs", &[]),
        ("tests/it/main.rs", &[]),
        ("tests/kit/main.rs", &[]),
        ("tests/names/main.rs", &[]),
        ("tests/sim/src/main.rs", &[]),
        ("tests/sim/seeded/main.rs", &[]),
        (
            "tests/src/lib.rs",
            &["tests/src/bin/guard.rs", "tests/src/bin/worker.rs"],
        ),
        ("examples/order-service/main.rs", &[]),
        (
            "examples/services/axum.rs",
            &["examples/services/actix.rs", "examples/services/tonic.rs"],
        ),
        ("examples/testing-handlers/main.rs", &[]),
        ("examples/tests/systems/main.rs", &[]),
    ] {
        let start = root().join(start);
        let folder = start.parent().expect("a folder").to_owned();
        let mut found: BTreeSet<PathBuf> = others
            .iter()
            .map(|other: &&str| root().join(other))
            .collect();
        reachable(&start, &folder, &mut found);
        let orphans: Vec<_> = sources(&folder).difference(&found).cloned().collect();
        assert!(orphans.is_empty(), "no `mod` leads to {orphans:?}");
    }
}

/// What each room of the runtime, a file or a folder, may call: the house has no stairs upwards but for `BACK`.
const RUNTIME: &[(&str, &[&str])] = &[
    (
        "private",
        &["detached", "lock", "locks", "name", "outcome", "site"],
    ),
    ("detached", &["current", "error", "held", "lock", "locks"]),
    (
        "lock",
        &["acquire", "clock", "error", "held", "locks", "name", "site"],
    ),
    ("outcome", &["error"]),
    ("answer", &["cycle", "error", "holder", "name"]), // cycle and holder in its tests
    (
        "testing",
        &["clock", "config", "engine", "error", "locks", "name"],
    ),
    ("global", &["acquire", "config", "error", "locks", "name"]),
    (
        "acquire",
        &[
            "clock", "config", "core", "current", "engine", "error", "held", "locks", "meter",
            "name", "site", "tenure",
        ],
    ),
    (
        "locks",
        &[
            "acquire", "clock", "config", "engine", "error", "global", "name",
        ],
    ),
    (
        "held",
        &[
            "core", "current", "engine", "error", "limit", "meter", "name", "tenure", "token",
        ],
    ),
    ("limit", &["clock", "engine"]),
    (
        "current",
        &["core", "engine", "error", "name", "tenure", "token"],
    ),
    (
        "engine",
        &[
            "clock", "config", "core", "cycle", "error", "held", "holder", "meter", "name",
            "order", "site", "tenure", "token",
        ],
    ),
    ("tenure", &["clock", "core", "error", "name", "token"]),
    ("core", &["clock", "error", "site"]),
    ("config", &["error", "site"]),
    ("error", &["cycle", "holder", "name"]),
    ("cycle", &["holder"]),
    ("holder", &[]),
    ("meter", &["clock", "error", "name"]),
    ("name", &[]),
    ("names", &[]),
    ("site", &[]),
    ("register", &[]),
    ("templates", &[]),
    ("clock", &[]),
    ("order", &["error", "name"]),
    ("token", &[]),
];

/// The calls that close a circle; ARCHITECTURE.md says what they are for.
const BACK: &[(&str, &str)] = &[
    ("locks", "global"),
    ("locks", "acquire"),
    ("engine", "held"),
];

/// The files of a room of the runtime: `x.rs`, what is below `x/`, or both.
fn files(room: &str) -> BTreeSet<PathBuf> {
    let path = root().join("runtime/src").join(room);
    let mut files = BTreeSet::new();
    if path.is_dir() {
        files = sources(&path);
    }
    let file = path.with_extension("rs");
    if file.exists() {
        files.insert(file);
    }
    assert!(!files.is_empty(), "there is no room `{room}` any more");
    files
}

/// A source without the lines that are comments.
fn code(text: &str) -> String {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| [line, "\n"])
        .collect()
}

/// A source without its unit tests, which may do as they like.
fn without_tests(code: &str) -> &str {
    code.split_once("#[cfg(test)]\nmod tests {")
        .map_or(code, |(own, _tests)| own)
}

/// What stands behind each `crate::`, and in the braces of each `crate::{…}`: the first name of the path.
fn called(code: &str) -> Vec<String> {
    let first = |path: &str| -> String {
        let path = path.trim_start();
        let end = path.find(|c: char| !(c.is_alphanumeric() || c == '_'));
        path[..end.unwrap_or(path.len())].to_owned()
    };
    let mut called = Vec::new();
    for (at, found) in code.match_indices("crate::") {
        if code[..at].ends_with('$') {
            continue; // what a macro expands to is not called from here
        }
        let path = &code[at + found.len()..];
        let Some(group) = path.trim_start().strip_prefix('{') else {
            called.push(first(path));
            continue;
        };
        let (mut depth, mut from) = (0, 0);
        for (to, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                ',' | '}' if depth == 0 => {
                    if !group[from..to].trim().is_empty() {
                        called.push(first(&group[from..to]));
                    }
                    from = to + 1;
                    if c == '}' {
                        break;
                    }
                }
                _ => {}
            }
        }
    }
    called
}

#[test]
fn calls_are_found_in_every_form_of_a_path() {
    let code = code(
        "use crate::held::LockGuard;\n// use crate::not::This;\nuse crate::{\n    core::{CallId, request::{Key, Kv}},\n    \
         engine, self,\n};\nlet it = crate::global::locks($crate::Template);\nuse crate::*;\n",
    );
    assert_eq!(
        called(&code),
        ["held", "core", "engine", "self", "global", ""]
    );
}

#[test]
fn rooms_call_only_where_the_architecture_lets_them() {
    let src = root().join("runtime/src");
    let mut rooms = BTreeSet::from([src.join("lib.rs")]);
    for (room, allowed) in RUNTIME {
        for file in files(room) {
            let code = code(&read(&file));
            for called in called(&code) {
                assert!(
                    called == *room || allowed.contains(&called.as_str()),
                    "{} must not call `{called}`; what it may call is in a table here",
                    file.display()
                );
            }
            // The other ways to another room, round the table.
            let own = without_tests(&code);
            let door = file.strip_prefix(&src).expect("a file of the runtime");
            let deep = door.components().count() - usize::from(file.ends_with("mod.rs"));
            let up = "super::".repeat(deep);
            for way in [up.as_str(), "use etcd_locked::", "use crate as"] {
                assert!(
                    !own.contains(way),
                    "{} says `{way}`; write `crate::…`",
                    file.display()
                );
            }
            rooms.insert(file);
        }
    }
    let unlisted: Vec<_> = sources(&src).difference(&rooms).cloned().collect();
    assert!(
        unlisted.is_empty(),
        "say in the table above what {unlisted:?} may call"
    );
}

#[test]
fn the_rooms_have_no_circle_but_those_we_know() {
    // Takes away whoever calls nobody that is left; who stays then is in a circle, or calls one.
    let circle = |back: &[(&str, &str)]| -> BTreeSet<&str> {
        let mut left: BTreeSet<&str> = RUNTIME.iter().map(|(room, _)| *room).collect();
        loop {
            let stays = |room: &str, called: &[&str]| {
                left.contains(room)
                    && called
                        .iter()
                        .any(|other| left.contains(other) && !back.contains(&(room, other)))
            };
            let next: BTreeSet<&str> = RUNTIME
                .iter()
                .filter(|(room, called)| stays(room, called))
                .map(|(room, _)| *room)
                .collect();
            if next == left {
                return left;
            }
            left = next;
        }
    };
    assert_eq!(circle(BACK), BTreeSet::new(), "there is a circle in these");
    for (n, known) in BACK.iter().enumerate() {
        let others: Vec<_> = [&BACK[..n], &BACK[n + 1..]].concat();
        assert!(
            !circle(&others).is_empty(),
            "{known:?} closes no circle any more: strike it off"
        );
    }
    for (room, called) in RUNTIME {
        for other in *called {
            assert!(
                RUNTIME.iter().any(|(known, _)| known == other),
                "`{room}` may call `{other}`, which there is not"
            );
        }
    }
}

/// The paths that the code map of ARCHITECTURE.md names, by indentation; a folder ends in `/`.
fn map() -> BTreeSet<String> {
    let text = read(&root().join("ARCHITECTURE.md"));
    let (_, map) = text
        .split_once("## Code map\n")
        .expect("ARCHITECTURE.md has a code map");
    let (map, _) = map.split_once("\n## ").unwrap_or((map, ""));
    let mut folders: Vec<(usize, String)> = Vec::new();
    let mut named = BTreeSet::new();
    for line in map.lines() {
        let indent = line.len() - line.trim_start().len();
        let name = line.split_whitespace().next().unwrap_or_default();
        // Less is prose, more continues what was said of the line above.
        if !(4..=8).contains(&indent) || !(name.ends_with('/') || name.ends_with(".rs")) {
            continue;
        }
        folders.retain(|(outer, _)| *outer < indent);
        let above = folders
            .last()
            .map_or("", |(_, folder)| folder.as_str())
            .to_owned();
        let path = above + name;
        if name.ends_with('/') {
            folders.push((indent, path.clone()));
        }
        named.insert(path);
    }
    named
}

#[test]
fn the_code_map_names_every_room_and_nothing_else() {
    let named = map();
    for path in &named {
        assert!(
            root().join(path).exists(),
            "the code map of ARCHITECTURE.md names {path}, which there is not"
        );
    }
    for folder in ["macros/src", "runtime/src", "embedded/src", "tests/sim"] {
        for source in sources(&root().join(folder)) {
            let source = source.strip_prefix(root()).expect("a path below the root");
            // A folder may stand for what is in it, if nothing in it is named.
            let stands_for = |folder: &Path| {
                let folder = format!("{}/", folder.display());
                named.contains(&folder)
                    && !named
                        .iter()
                        .any(|path| path.starts_with(&folder) && *path != folder)
            };
            assert!(
                named.contains(&source.display().to_string()) || source.ancestors().any(stands_for),
                "the code map of ARCHITECTURE.md does not name {}",
                source.display()
            );
        }
    }
}

#[test]
fn the_core_awaits_nothing_and_reads_no_clock() {
    for file in sources(&root().join("runtime/src/core")) {
        let text = read(&file);
        for word in [
            ".await",
            "async fn",
            "tokio::",
            "etcd_client::",
            "Instant::now",
            "SystemTime",
            "thread::",
        ] {
            assert!(!text.contains(word), "{} says `{word}`", file.display());
        }
    }
}

#[test]
fn all_time_comes_from_the_clock() {
    let src = root().join("runtime/src");
    for file in sources(&src) {
        if file == src.join("clock.rs") {
            continue;
        }
        let code = code(&read(&file));
        for word in ["tokio::time", "tokio::{", "Instant", "thread::sleep"] {
            assert!(
                !without_tests(&code).contains(word),
                "{} says `{word}`: a test kit cannot move that; ask `crate::clock`",
                file.display()
            );
        }
    }
}

#[test]
fn xtask_needs_no_protoc() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let tree = Command::new(cargo)
        .current_dir(root())
        .args(["tree", "--offline", "--package", "xtask"])
        .args(["--edges", "normal,build", "--prefix", "none"])
        .output()
        .expect("cargo runs");
    let said = String::from_utf8_lossy(&tree.stderr);
    assert!(tree.status.success(), "cargo tree: {said}");
    let tree = String::from_utf8_lossy(&tree.stdout);
    assert!(tree.starts_with("xtask "), "{tree}");
    for dependency in tree.lines() {
        // Ours are all built on etcd-client; only xtask is not.
        for with_protoc in ["etcd", "tonic", "prost"] {
            assert!(!dependency.starts_with(with_protoc), "{dependency}");
        }
    }
}

#[test]
fn our_crates_are_pinned_to_each_other_and_in_the_changelog() {
    let workspace = read(&root().join("Cargo.toml"));
    let version = workspace
        .lines()
        .find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'))
        .expect("[workspace.package] has a version");
    let runtime = read(&root().join("runtime/Cargo.toml"));
    for ours in ["macros", "embedded"] {
        let pin = format!("etcd-locked-{ours} = {{ version = \"={version}\"");
        assert!(runtime.contains(&pin), "runtime/Cargo.toml must say {pin}");
    }
    let changelog = read(&root().join("CHANGELOG.md"));
    assert!(
        changelog.contains(&format!("## {version}")),
        "CHANGELOG.md has no section {version}"
    );
}
