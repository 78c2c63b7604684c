//! Path of the crate `etcd-locked` in expansions of the attribute and of `LockKey`, where no `crate = path` says it.
//!
//! A package that depends on etcd-locked has it at `::etcd_locked`. One that has it by another name, or from a package of its own
//! workspace, would get rustc's "unlinked crate" for a path that it never wrote.

use std::path::Path as FilePath;
use std::{env, fs};

use proc_macro2::Span;
use syn::parse::Parser as _;
use syn::{Error, Path, Result};

use crate::value::absolute_path;

/// Environment variable that a team sets by `[env]` in the workspace's `.cargo/config.toml`: the path in packages that have the
/// runtime from another package.
const VARIABLE: &str = "ETCD_LOCKED_CRATE";

/// Returns the path of the runtime in the package that is being compiled: `None` for `::etcd_locked`. An error says what to write.
pub(crate) fn path() -> Result<Option<Path>> {
    // Nothing but cargo needs a manifest.
    let Some(package) = env::var_os("CARGO_MANIFEST_DIR") else {
        return Ok(None);
    };
    let variable = env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    let found = match fs::read_to_string(FilePath::new(&package).join("Cargo.toml")) {
        // A test kit beside the runtime of another package.
        Ok(manifest) if !names_the_runtime(&manifest, variable.is_none()) => elsewhere(variable),
        _ => Ok(None),
    };
    found.map_err(|message| Error::new(Span::call_site(), message))
}

/// Returns the path by the variable, for a package whose manifest does not name the runtime.
fn elsewhere(variable: Option<String>) -> std::result::Result<Option<Path>, String> {
    let Some(text) = variable else {
        return Err(format!(
            "`etcd-locked` is no dependency of this package by that name; say where it is with `crate = ::path::to::etcd_locked`, or once \
             for the workspace: `{VARIABLE} = \"::path::to::etcd_locked\"` under `[env]` of `.cargo/config.toml`"
        ));
    };
    let path = absolute_path.parse_str(&text);
    path.map(Some).map_err(|error| format!("`{VARIABLE}` is `{text}`: {error}"))
}

/// Whether a manifest names the runtime as a dependency of its package, or its package is one of ours; `for_tests`: or as one of its tests.
///
/// It is read by lines, so that no parser of TOML is compiled with each user's program: keys and headers count, and what is renamed has
/// another key.
fn names_the_runtime(manifest: &str, for_tests: bool) -> bool {
    let is_it = |word: &str| matches!(unquoted(word), "etcd-locked" | "etcd_locked");
    let mut counts = true;
    manifest.lines().any(|line| {
        let line = line.split('#').next().unwrap_or(line).trim();
        if let Some(header) = line.strip_prefix('[') {
            let table = header.trim_matches(['[', ']']);
            let of_tests =
                ["dev-dependencies", "build-dependencies"].iter().any(|it| table.contains(it));
            counts = !table.starts_with("workspace") && (for_tests || !of_tests);
            return counts && table.rsplit('.').next().is_some_and(is_it);
        }
        let Some((key, value)) = line.split_once('=') else {
            return false;
        };
        let in_line = key.trim().ends_with("dependencies") && value.contains("etcd-locked");
        let ours = key.trim() == "name" && unquoted(value).starts_with("etcd-locked");
        counts && (in_line || ours || key.split('.').any(is_it))
    })
}

fn unquoted(word: &str) -> &str {
    word.trim().trim_matches(['"', '\''])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependency_is_found_however_it_is_written() {
        for manifest in [
            "[dependencies]\netcd-locked = \"0.1\"",
            "[dependencies]\netcd-locked.workspace = true",
            "[target.'cfg(unix)'.dependencies.etcd-locked]\nversion = \"0.1\"",
            "[dependencies]\n\"etcd-locked\" = { version = \"0.1\", features = [\"tls\"] }",
            "[package]\nname = \"etcd-locked\"",
            "dependencies.etcd-locked = \"0.1\"",
            "dependencies = { etcd-locked = \"0.1\" }",
        ] {
            assert!(names_the_runtime(manifest, false), "{manifest}");
        }
    }

    #[test]
    fn renamed_or_missing_dependency_is_none() {
        for manifest in [
            "[dependencies]\nshop = { path = \"../shop\" }",
            "[dependencies]\nlocks = { package = \"etcd-locked\", version = \"0.1\" }",
            "[dependencies.locks]\npackage='etcd-locked'",
            "[dependencies]\nlocks = { package = \"etcd-locked\", path = \"../etcd-locked\" }",
            "[workspace.dependencies]\netcd-locked = \"0.1\"\n[dependencies]\nshop = \"1\"",
            "[dependencies]\netcd-locked-embedded = \"0.1\"",
            "[dependencies]\nshop = \"1\" # re-exports etcd-locked",
        ] {
            assert!(!names_the_runtime(manifest, true), "{manifest}");
        }
        let test_kit = "[dev-dependencies]\netcd-locked = \"0.1\"";
        assert!(names_the_runtime(test_kit, true) && !names_the_runtime(test_kit, false));
    }

    #[test]
    fn workspace_says_the_path_once() {
        let Err(missing) = elsewhere(None) else {
            panic!("nowhere");
        };
        assert!(missing.contains("`crate = ::path::to::etcd_locked`"), "{missing}");
        let Err(wrong) = elsewhere(Some("shop::locks".to_owned())) else {
            panic!("no absolute path");
        };
        assert!(wrong.starts_with("`ETCD_LOCKED_CRATE` is `shop::locks`: "), "{wrong}");
        let path = elsewhere(Some("::shop::locks".to_owned())).expect("a path").expect("one");
        assert_eq!(path.segments.len(), 2);
    }
}
