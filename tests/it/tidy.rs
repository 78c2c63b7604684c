//! The repository keeps its own rules.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

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
        reachable(&at, &inner, found);
    }
}

#[test]
fn every_source_file_is_reachable() {
    for (start, others) in [
        ("macros/src/lib.rs", &[][..]),
        ("runtime/src/lib.rs", &[]),
        ("xtask/src/main.rs", &[]),
        ("tests/it/main.rs", &[]),
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

/// What each room of the runtime may call: the house has no stairs upwards.
const RUNTIME: &[(&str, &[&str])] = &[
    ("core", &["clock", "error", "site"]),
    (
        "engine",
        &[
            "clock", "config", "core", "error", "held", "holder", "name", "site", "tenure", "token",
        ],
    ),
    ("tenure.rs", &["clock", "core", "error", "name", "token"]),
    (
        "current.rs",
        &["core", "engine", "error", "name", "tenure", "token"],
    ),
    (
        "held.rs",
        &[
            "core", "current", "engine", "error", "name", "tenure", "token",
        ],
    ),
    (
        "locks.rs",
        &[
            "config", "core", "current", "engine", "error", "global", "held", "holder", "name",
            "site",
        ],
    ),
    ("global.rs", &["config", "error", "locks", "name"]),
    ("private.rs", &["error", "held", "locks", "name", "site"]),
    ("config.rs", &["error", "site"]),
    ("error.rs", &["holder", "name"]),
    ("holder.rs", &[]),
    ("name.rs", &[]),
    ("names.rs", &[]),
    ("site.rs", &[]),
    ("register.rs", &[]),
    ("templates.rs", &[]),
    ("clock.rs", &[]),
    ("token.rs", &[]),
];

#[test]
fn rooms_call_only_where_the_architecture_lets_them() {
    let src = root().join("runtime/src");
    let mut rooms = BTreeSet::from([src.join("lib.rs")]);
    for (room, allowed) in RUNTIME {
        let path = src.join(room);
        let files = if path.is_dir() {
            sources(&path)
        } else {
            BTreeSet::from([path])
        };
        for file in files {
            for line in read(&file).lines() {
                let Some((before, used)) = line.split_once("crate::") else {
                    continue;
                };
                if before.ends_with('$') {
                    continue; // what a macro expands to is not called from here
                }
                let room_of = used
                    .split(|c: char| !(c.is_alphanumeric() || c == '_'))
                    .next()
                    .unwrap_or_default();
                let own = room.trim_end_matches(".rs") == room_of;
                let macro_or_type = room_of.chars().next().is_none_or(char::is_uppercase);
                let docs = line.trim_start().starts_with("//");
                assert!(
                    own || docs || macro_or_type || allowed.contains(&room_of),
                    "{} must not call `{room_of}`",
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
fn the_core_awaits_nothing_and_reads_no_clock() {
    let core = root().join("runtime/src/core");
    let tests = core.join("tests");
    for file in sources(&core) {
        if file.starts_with(&tests) || file.ends_with("tests.rs") {
            continue;
        }
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
fn xtask_needs_no_protoc() {
    let manifest = read(&root().join("xtask/Cargo.toml"));
    for dependency in ["etcd", "tonic", "prost"] {
        assert!(
            !manifest
                .lines()
                .any(|line| line.trim_start().starts_with(dependency)),
            "{dependency}"
        );
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
    let pin = format!("etcd-locked-macros = {{ version = \"={version}\"");
    assert!(runtime.contains(&pin), "runtime/Cargo.toml must say {pin}");
    let changelog = read(&root().join("CHANGELOG.md"));
    assert!(
        changelog.contains(&format!("## {version}")),
        "CHANGELOG.md has no section {version}"
    );
}
