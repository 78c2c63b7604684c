//! Rules that the repository keeps for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

mod calls;

use calls::{Crate, cycles};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ lies in the workspace")
        .to_owned()
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// All `.rs` files below a folder.
pub(crate) fn sources(folder: &Path) -> BTreeSet<PathBuf> {
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
        ("core/src/lib.rs", &[]),
        ("combiner/src/lib.rs", &[]),
        ("runtime/src/lib.rs", &[]),
        ("embedded/src/lib.rs", &["embedded/src/main.rs"]),
        ("benches/src/main.rs", &[]),
        ("cli/tests/commands/main.rs", &[]),
        ("xtask/src/main.rs", &[]),
        ("tests/differential/main.rs", &[]),
        ("tests/it/main.rs", &[]),
        ("tests/kit/main.rs", &[]),
        ("tests/names/main.rs", &[]),
        ("tests/chaos/src/main.rs", &[]),
        ("tests/sim/src/lib.rs", &["tests/sim/src/main.rs"]),
        ("tests/attribute/src/lib.rs", &[]),
        ("tests/devkit/src/lib.rs", &[]),
        (
            "tests/src/lib.rs",
            &[
                "tests/src/bin/fenced.rs",
                "tests/src/bin/traced.rs",
                "tests/src/bin/worker.rs",
            ],
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

/// Where the crates lie whose files are checked one by one: no file calls another one in a cycle.
const ROOTS: &[&str] = &["runtime/src", "core/src"];

/// What each room of the runtime, a file or a folder, may call.
const ROOMS: &[(&str, &[&str])] = &[
    ("call", &["api", "clock", "values"]),
    ("api", &["clock", "engine", "metrics", "values"]),
    ("engine", &["clock", "metrics", "transport", "values"]),
    ("transport", &["clock", "metrics", "values"]),
    ("testing", &["api", "clock", "engine", "values"]),
    ("answer", &["values"]),
    ("metrics", &["clock", "values"]),
    ("templates", &[]),
    ("values", &[]),
    ("clock", &[]),
];

/// A source without the lines that are comments.
fn code(text: &str) -> String {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| [line, "\n"])
        .collect()
}

/// A source without its unit tests, which may do as they like.
pub(crate) fn without_tests(code: &str) -> &str {
    code.split_once("#[cfg(test)]\nmod tests {")
        .map_or(code, |(own, _tests)| own)
}

/// The room of a file below a root: its first folder, or its own name.
fn room(file: &Path, root: &Path) -> String {
    let below = file.strip_prefix(root).expect("a file below the root");
    let first = below.components().next().expect("a path");
    let first = Path::new(first.as_os_str()).with_extension("");
    first.display().to_string()
}

#[test]
fn files_call_each_other_in_no_cycle() {
    for folder in ROOTS {
        let found = Crate::read(&root().join(folder));
        let cycles = cycles(&found.calls());
        let paths: Vec<_> = cycles.iter().map(|module| module.join("::")).collect();
        assert!(
            paths.is_empty(),
            "these files of {folder} call each other in a cycle: {paths:#?}"
        );
    }
}

#[test]
fn rooms_call_only_where_the_architecture_lets_them() {
    let src = root().join("runtime/src");
    let found = Crate::read(&src);
    let allowed: BTreeMap<&str, &[&str]> = ROOMS.iter().copied().collect();
    for source in found.modules.values().filter(|source| !source.is_contents) {
        let caller = room(&source.file, &src);
        let may = allowed
            .get(&*caller)
            .unwrap_or_else(|| panic!("say in the table above what `{caller}` may call"));
        for path in &source.paths {
            // The room that the path names; of a name in `lib.rs` the room where it leads.
            let named = path.first().map_or("", String::as_str);
            let called = match allowed.contains_key(named) {
                true => named.to_owned(),
                false => room(&found.modules[found.leads_to(path)].file, &src),
            };
            assert!(
                called == caller || may.contains(&&*called),
                "{} must not call `{called}` (`{}`); the table here says what it may call",
                source.file.display(),
                path.join("::")
            );
        }
        let code = code(&read(&source.file));
        for way in ["use etcd_locked::", "use crate as"] {
            assert!(
                !without_tests(&code).contains(way),
                "{} says `{way}`; write `crate::…`",
                source.file.display()
            );
        }
    }
}

#[test]
fn rooms_of_the_table_exist_and_form_no_cycle() {
    let table: BTreeMap<&str, BTreeSet<&str>> = ROOMS
        .iter()
        .map(|(room, called)| (*room, called.iter().copied().collect()))
        .collect();
    assert_eq!(cycles(&table), BTreeSet::new());
    let src = root().join("runtime/src");
    for room in table.keys().chain(table.values().flatten()) {
        let exists = src.join(room).is_dir() || src.join(format!("{room}.rs")).exists();
        assert!(exists, "there is no room `{room}` any more");
    }
}

#[test]
fn calls_are_found_in_every_form_of_a_path() {
    let text = concat!(
        "use crate::held::LockGuard;\n// use crate::not::This;\n",
        "use crate::{\n    core::{CallId, request::{Key, Kv}},\n    engine as motor, self,\n};\n",
        "let it = crate::global::locks($crate::Template, \"crate::no\");\n",
        "use super::near::*;\nuse self::below::It; child::call(); other::call();\n",
        "mod inner { use super::up::It; }\n#[cfg(test)]\nmod tests { use crate::not::This; }\n",
        "#[cfg(test)]\nmod more;\nfn f<'a>(_: crate::last::It<'a>) {}",
    );
    let here = ["a".to_owned(), "b".to_owned()];
    let tokens = calls::without_tests(calls::tokens(text));
    let found: Vec<_> = calls::paths(&tokens, &here, &[("child".to_owned(), None)])
        .into_iter()
        .map(|(name, path)| {
            path.join("::") + &name.map_or(String::new(), |name| format!(" as {name}"))
        })
        .collect();
    assert_eq!(
        found,
        [
            "held::LockGuard",
            "core::CallId",
            "core::request::Key",
            "core::request::Kv",
            "engine as motor",
            "",
            "global::locks",
            "a::near",
            "a::b::below::It",
            "a::b::child::call",
            "a::b::up::It",
            "last::It",
        ]
    );
}

#[test]
fn cycles_are_found_and_what_hangs_on_them_is_not() {
    let calls = |pairs: &[(char, &str)]| -> BTreeMap<char, BTreeSet<char>> {
        let pairs = pairs.iter();
        pairs
            .map(|(it, called)| (*it, called.chars().collect()))
            .collect()
    };
    let ring = calls(&[('a', "b"), ('b', "c"), ('c', "bd"), ('d', "")]);
    assert_eq!(cycles(&ring), BTreeSet::from(['b', 'c']));
    let tree = calls(&[('a', "bc"), ('b', "c"), ('c', "")]);
    assert_eq!(cycles(&tree), BTreeSet::new());
}

#[test]
fn tables_of_contents_lead_to_what_they_export() {
    let found = Crate::read(&root().join("runtime/src"));
    let leads = |path: &str| {
        let path: Vec<_> = path.split("::").map(str::to_owned).collect();
        found.leads_to(&path).join("::")
    };
    assert_eq!(leads("engine::Engine"), "engine::handle");
    assert_eq!(leads("Config"), "values::config::builder");
    assert_eq!(leads("testing::Etcd"), "testing");
    assert!(found.modules[&vec!["engine".to_owned()]].is_contents);
    assert!(!found.modules[&vec!["testing".to_owned()]].is_contents);
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
    for folder in [
        "macros/src",
        "core/src",
        "combiner/src",
        "runtime/src",
        "embedded/src",
        "tests/sim",
    ] {
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
            // A table of contents says no more than the line of its folder.
            let folder = source.parent().expect("a file in a folder");
            let is_contents = source.ends_with("mod.rs")
                && named.contains(&format!("{}/", folder.display()))
                && calls::is_contents(&read(&root().join(source)));
            assert!(
                is_contents
                    || named.contains(&source.display().to_string())
                    || source.ancestors().any(stands_for),
                "the code map of ARCHITECTURE.md does not name {}",
                source.display()
            );
        }
    }
}

#[test]
fn the_core_awaits_nothing_and_reads_no_clock() {
    for file in sources(&root().join("core/src")) {
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
        // Ours are all built on etcd-client; only xtask and the kit are not.
        if dependency.starts_with("etcd-locked-devkit ") {
            continue;
        }
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
    for ours in ["macros", "core", "combiner", "embedded"] {
        let pin = format!("etcd-locked-{ours} = {{ version = \"={version}\"");
        assert!(runtime.contains(&pin), "runtime/Cargo.toml must say {pin}");
    }
    let changelog = read(&root().join("CHANGELOG.md"));
    assert!(
        changelog.contains(&format!("## {version}")),
        "CHANGELOG.md has no section {version}"
    );
}
