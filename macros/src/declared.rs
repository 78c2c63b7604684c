//! Declared names only: with `ETCD_LOCKED_DECLARED_ONLY` set, the attribute refuses lock names written as string templates.

use std::env;
use std::path::Path;

/// Environment variable that a team sets by `[env]` in the workspace's `.cargo/config.toml`.
pub(crate) const VARIABLE: &str = "ETCD_LOCKED_DECLARED_ONLY";

/// Returns true if string templates are refused in the package that is being compiled.
pub(crate) fn declared_only() -> bool {
    let on = env::var(VARIABLE).is_ok_and(|value| !matches!(value.as_str(), "" | "0"));
    on && !env::var_os("CARGO_MANIFEST_DIR").is_some_and(|package| is_foreign(Path::new(&package)))
}

/// Returns true if cargo has fetched this package: from a registry, from git, or by `cargo vendor`.
///
/// Other people own such packages, so this workspace's rule does not apply to them. `CARGO_PRIMARY_PACKAGE` would exempt
/// members that are built as dependencies too.
fn is_foreign(package: &Path) -> bool {
    let marked = |folder: &Path| {
        [".cargo-ok", ".cargo-checksum.json"].iter().any(|mark| folder.join(mark).exists())
    };
    package.ancestors().any(marked)
}
