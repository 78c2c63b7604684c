//! Rules that the repository keeps for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

mod calls;
mod modules;

use serde_json::Value;

use calls::{Crate, cycles};
use modules::{Module, modules};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace").to_owned()
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

/// What cargo prints for these arguments.
fn cargo(arguments: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let ran = Command::new(cargo)
        .current_dir(root())
        .args(arguments)
        .arg("--offline")
        .output()
        .expect("cargo runs");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "cargo {arguments:?}: {said}");
    String::from_utf8(ran.stdout).expect("text")
}

/// The packages of the workspace, as cargo describes them.
fn packages() -> Vec<Value> {
    let text = cargo(&["metadata", "--no-deps", "--format-version=1"]);
    let mut found: Value = serde_json::from_str(&text).expect("JSON");
    match found["packages"].take() {
        Value::Array(packages) => packages,
        other => panic!("no packages: {other}"),
    }
}

/// The modules of a package's targets of the kinds that are wanted.
fn modules_of(package: &Value, wanted: fn(&str) -> bool) -> Vec<Module> {
    let targets = package["targets"].as_array().expect("targets").iter();
    let of_kind = targets.filter(|target| target["kind"][0].as_str().is_some_and(wanted));
    of_kind
        .flat_map(|target| modules(Path::new(target["src_path"].as_str().expect("a path"))))
        .collect()
}

/// Folders of packages whose files belong to no target: crates outside the workspace, and cases of compile errors.
const OF_NO_TARGET: &[&str] = &["benches/telemetry", "tests/outside", "tests/mistakes/ui"];

#[test]
fn every_source_file_is_reachable() {
    let (mut files, mut reached) = (BTreeSet::new(), BTreeSet::new());
    for package in packages() {
        let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
        files.extend(sources(manifest.parent().expect("a folder")));
        let modules = modules_of(&package, |_| true).into_iter();
        reached.extend(modules.map(|module| module.file));
    }
    for folder in OF_NO_TARGET {
        files.retain(|file| !file.starts_with(root().join(folder)));
    }
    let orphans: Vec<_> = files.difference(&reached).collect();
    assert!(orphans.is_empty(), "no `mod` leads to {orphans:?}");
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
    code.split_once("#[cfg(test)]\nmod tests {").map_or(code, |(own, _tests)| own)
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
        assert!(paths.is_empty(), "these files of {folder} call each other in a cycle: {paths:#?}");
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
    let table: BTreeMap<&str, BTreeSet<&str>> =
        ROOMS.iter().map(|(room, called)| (*room, called.iter().copied().collect())).collect();
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
        "use crate::held::LockGuard;\n// use crate::not::This;\n/* use crate::nor::That; */",
        "use crate::{\n    core::{CallId, request::{Key, Kv}},\n    engine as motor, self,\n};\n",
        "fn f<'a>(it: crate::first::It<'a>) {\n    let it = crate::global::locks(\"crate::no\");\n",
        "    log!(r#\"crate::no \" crate::nor\"#, crate::argument::It); child::call(); other::call();\n}\n",
        "macro_rules! it { ($($it:tt)*) => { $crate::no::It; $(crate::within::It)* } }\n",
        "use super::near::*;\nuse self::below::It;\nmod child;\n",
        "mod inner { use super::up::It; }\n#[cfg(test)]\nmod tests { use crate::not::This; }\n",
        "#[cfg(test)]\nmod more;\n",
    );
    let items = syn::parse_file(text).expect("Rust").items;
    let here = ["a".to_owned(), "b".to_owned()];
    let found: Vec<_> = calls::paths(&modules::without_tests(items), &here)
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
            "first::It",
            "global::locks",
            "argument::It",
            "a::b::child::call",
            "within::It",
            "a::near",
            "a::b::below::It",
            "a::b::up::It",
        ]
    );
}

#[test]
fn cycles_are_found_and_what_hangs_on_them_is_not() {
    let calls = |pairs: &[(char, &str)]| -> BTreeMap<char, BTreeSet<char>> {
        let pairs = pairs.iter();
        pairs.map(|(it, called)| (*it, called.chars().collect())).collect()
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
    let (_, map) = text.split_once("## Code map\n").expect("ARCHITECTURE.md has a code map");
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
        let above = folders.last().map_or("", |(_, folder)| folder.as_str()).to_owned();
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
    let is_product = |kind: &str| matches!(kind, "lib" | "proc-macro" | "bin");
    let modules = packages()
        .into_iter()
        .flat_map(|package| modules_of(&package, is_product))
        // The line of `tests/` tells of these.
        .filter(|module| !module.file.starts_with(root().join("tests/src")));
    for module in modules {
        let source = module.file.strip_prefix(root()).expect("a path below the root");
        // A folder may stand for what is in it, if nothing in it is named.
        let stands_for = |folder: &Path| {
            let folder = format!("{}/", folder.display());
            named.contains(&folder)
                && !named.iter().any(|path| path.starts_with(&folder) && *path != folder)
        };
        // A table of contents says no more than the line of its folder.
        let folder = source.parent().expect("a file in a folder");
        let is_contents = source.ends_with("mod.rs")
            && named.contains(&format!("{}/", folder.display()))
            && module.is_contents();
        assert!(
            is_contents
                || named.contains(&source.display().to_string())
                || source.ancestors().any(stands_for),
            "the code map of ARCHITECTURE.md does not name {}",
            source.display()
        );
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
    let tree = cargo(&["tree", "--package=xtask", "--edges=normal,build", "--prefix=none"]);
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
    assert!(changelog.contains(&format!("## {version}")), "CHANGELOG.md has no section {version}");
}
