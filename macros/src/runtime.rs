//! Path of the runtime in expansions, where no `crate = path` says it.
//!
//! A package that depends on etcd-locked has it at `::etcd_locked`. One that has it by another name, or from a package of its own
//! workspace, would get rustc's "unlinked crate" for a path that it never wrote.

use std::path::Path as File;
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
    let package = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    let found = match fs::read_to_string(File::new(&package).join("Cargo.toml")) {
        Ok(manifest) if !names_the_runtime(&manifest) => elsewhere(env::var(VARIABLE).ok()),
        _ => Ok(None),
    };
    found.map_err(|message| Error::new(Span::call_site(), message))
}

/// The same for a package whose manifest does not name the runtime.
fn elsewhere(variable: Option<String>) -> std::result::Result<Option<Path>, String> {
    let Some(text) = variable.filter(|text| !text.is_empty()) else {
        return Err(format!(
            "`etcd-locked` is no dependency of this package by that name; say where it is with `crate = ::path::to::etcd_locked`, or once \
             for the workspace: `{VARIABLE} = \"::path::to::etcd_locked\"` under `[env]` of `.cargo/config.toml`"
        ));
    };
    let path = absolute_path.parse_str(&text);
    path.map(Some)
        .map_err(|error| format!("`{VARIABLE}` is `{text}`: {error}"))
}

/// Whether a manifest has the runtime's name anywhere but as that of a renamed package, or in a comment.
fn names_the_runtime(manifest: &str) -> bool {
    manifest.lines().any(|line| {
        let line = line.split('#').next().unwrap_or(line);
        let line: String = line.chars().filter(|c| !c.is_whitespace()).collect();
        let line = line
            .replace('\'', "\"")
            .replace(r#"package="etcd-locked""#, "");
        line.contains("etcd-locked") || line.contains("etcd_locked")
    })
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
        ] {
            assert!(names_the_runtime(manifest), "{manifest}");
        }
    }

    #[test]
    fn renamed_or_missing_dependency_is_none() {
        for manifest in [
            "[dependencies]\nshop = { path = \"../shop\" }",
            "[dependencies]\nlocks = { package = \"etcd-locked\", version = \"0.1\" }",
            "[dependencies.locks]\npackage='etcd-locked'",
            "[dependencies]\nshop = \"1\" # re-exports etcd-locked",
        ] {
            assert!(!names_the_runtime(manifest), "{manifest}");
        }
    }

    #[test]
    fn workspace_says_the_path_once() {
        let missing = elsewhere(None).expect_err("nowhere");
        assert!(
            missing.contains("`crate = ::path::to::etcd_locked`"),
            "{missing}"
        );
        let wrong = elsewhere(Some("shop::locks".to_owned())).expect_err("no absolute path");
        assert!(
            wrong.starts_with("`ETCD_LOCKED_CRATE` is `shop::locks`: "),
            "{wrong}"
        );
        let path = elsewhere(Some("::shop::locks".to_owned()))
            .expect("a path")
            .expect("one");
        assert_eq!(path.segments.len(), 2);
    }
}
