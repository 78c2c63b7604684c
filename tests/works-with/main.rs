//! Frameworks, and attributes beside ours, as services use them. Each compiles, is called, and runs under its lock. The book's page
//! "Works with" is this list.

mod attributes;
mod web;

/// Defines a function in both orders of its attributes: in `below` ours is the lower one, as written, in `above` the upper one.
macro_rules! both_orders {
    (mod $name:ident; #[$($theirs:tt)*] #[$($ours:tt)*] $($function:tt)*) => {
        mod $name {
            pub(super) mod below { use super::super::*; #[$($theirs)*] #[$($ours)*] $($function)* }
            pub(super) mod above { use super::super::*; #[$($ours)*] #[$($theirs)*] $($function)* }
        }
    };
}
use both_orders;

/// Checks that the calling body runs under the lock of this name, and returns the name.
fn under(name: impl Into<String>) -> String {
    let lock = etcd_locked::current().filter(|lock| lock.is_held()).expect("a lock");
    let name = name.into();
    assert_eq!(lock.name().text(), Some(&*name));
    name
}

#[test]
fn page_names_the_versions_of_the_manifest() {
    let manifest = include_str!("Cargo.toml");
    let rows = include_str!("../../book/src/works-with.md").lines();
    let rows = rows.filter_map(|row| row.strip_prefix("| ")?.split_once(" | "));
    let rows: Vec<_> =
        rows.filter(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit())).collect();
    for (name, rest) in &rows {
        let name = name.trim_start_matches('`').split(['`', ':']).next().unwrap().replace('_', "-");
        let version = rest.split(' ').next().unwrap();
        let required = manifest.lines().find_map(|line| line.strip_prefix(&format!("{name} = ")));
        assert!(
            required.is_some_and(|it| it.contains(&format!("\"{version}\""))),
            "{name} {version}"
        );
    }
    assert_eq!(rows.len(), 16);
}
