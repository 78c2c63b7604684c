//! Dependency directions: between the packages, between the rooms of the runtime, and between the machines of the core.
//! A room or a machine is a file or a folder directly below `src`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Packages of the workspace that a package may depend on, except in its tests.
const PACKAGES: &[(&str, &[&str])] = &[
    ("etcd-locked-macros", &[]),
    ("etcd-locked-core", &[]),
    ("etcd-locked-embedded", &[]),
    ("etcd-locked-devkit", &[]),
    ("etcd-locked", &["etcd-locked-macros", "etcd-locked-core", "etcd-locked-embedded"]),
    ("xtask", &["etcd-locked-devkit"]),
];

/// Rooms of a crate, each with the rooms that it may call, which are all in rows above it.
struct Rooms {
    src: &'static str,
    /// Rooms that every room may call; these call only each other.
    values: &'static [&'static str],
    table: &'static [(&'static str, &'static [&'static str])],
    /// Rooms that may call all others.
    top: &'static [&'static str],
}

const RUNTIME: Rooms = Rooms {
    src: "runtime/src",
    values: &["clock", "mutex", "values"],
    table: &[
        ("answer", &[]),
        ("templates", &[]),
        ("metrics", &[]),
        ("transport", &["metrics"]),
        ("engine", &["metrics", "transport"]),
        ("api", &["engine", "metrics"]),
        ("testing", &["api", "engine"]),
        ("call", &["api", "engine"]),
    ],
    top: &["lib"],
};

const CORE: Rooms = Rooms {
    src: "core/src",
    values: &["ids", "input", "loss", "moment", "output", "request", "seat", "steps"],
    table: &[
        ("ownership", &[]),
        ("reach", &[]),
        ("shutdown", &[]),
        ("timers", &[]),
        ("transactions", &[]),
        ("outbox", &["transactions"]),
        ("session", &["outbox", "timers", "transactions"]),
        ("pool", &["session", "timers", "transactions"]),
        ("contender", &["ownership"]),
        ("call", &["contender"]),
        ("name", &["call", "contender", "ownership", "pool", "session"]),
        ("view", &["contender", "outbox"]),
        ("deadlock", &["call", "contender", "name", "outbox", "ownership", "pool", "transactions"]),
    ],
    top: &["conductor", "lib"],
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace")
}

/// Returns the sources below a folder, each with its text.
pub(crate) fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let (mut found, mut folders) = (Vec::new(), vec![root().join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("a readable entry").path();
            match path.extension().is_some_and(|it| it == "rs") {
                true => found.push((path.clone(), fs::read_to_string(path).expect("text"))),
                false => folders.extend(path.is_dir().then_some(path)),
            }
        }
    }
    found
}

/// Returns a source without its comments and its unit tests.
pub(crate) fn code(text: &str) -> String {
    let own = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = own.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Returns the word after each `crate::` of a source.
fn called(code: &str) -> BTreeSet<&str> {
    let paths = code.match_indices("crate::").filter(|(at, _)| !code[..*at].ends_with('$'));
    let ends = |c: char| !c.is_alphanumeric() && c != '_';
    paths.filter_map(|(at, path)| code[at + path.len()..].split(ends).next()).collect()
}

#[test]
fn rooms_and_machines_call_only_what_they_may() {
    for Rooms { src, values, table, top } in [RUNTIME, CORE] {
        for (row, (room, may)) in table.iter().enumerate() {
            let below = table[row..].iter().find(|(it, _)| may.contains(it));
            assert_eq!(below, None, "{src}: `{room}` calls a room of a row below its own");
        }
        for (file, text) in sources(src) {
            let below = file.strip_prefix(root().join(src)).expect("a file below the root");
            let room = below.iter().next().and_then(|it| Path::new(it).file_stem()?.to_str());
            let room = room.expect("a room");
            if top.contains(&room) {
                continue;
            }
            let row = table.iter().find(|(it, _)| *it == room);
            let may = row.map_or(values, |(_, may)| may);
            assert!(row.is_some() || values.contains(&room), "no row for `{src}/{room}`");
            for it in called(&code(&text)) {
                let allowed = it == room || values.contains(&it) || may.contains(&it);
                assert!(allowed, "{} must not call `{it}`", file.display());
            }
        }
    }
}

#[test]
fn packages_depend_only_on_what_they_may() {
    let metadata = ["metadata", "--no-deps", "--format-version=1", "--offline"];
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let ran = Command::new(cargo).current_dir(root()).args(metadata).output().expect("cargo runs");
    let found: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    for package in found["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name");
        let dependencies = package["dependencies"].as_array().expect("dependencies").iter();
        for it in dependencies.filter(|it| it["kind"].is_null()) {
            let on = it["name"].as_str().expect("a name");
            let row = PACKAGES.iter().find(|row| row.0 == name);
            let counts = on.starts_with("etcd-locked") || name == "etcd-locked-core";
            let may = row.is_none_or(|row| !counts || row.1.contains(&on));
            let builds_without_protoc = ["etcd-locked-devkit", "xtask"].contains(&name);
            let refused = builds_without_protoc && ["etcd-client", "prost", "tonic"].contains(&on);
            assert!(may && !refused, "{name} must not depend on {on}");
        }
    }
}
