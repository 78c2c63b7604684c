//! Declared names only: `ETCD_LOCKED_DECLARED_ONLY` refuses every lock name that `lock_names!` does not declare.

use std::env;
use std::path::Path;

/// Environment variable that a team sets by `[env]` in the workspace's `.cargo/config.toml`.
pub(crate) const VARIABLE: &str = "ETCD_LOCKED_DECLARED_ONLY";

/// Returns true if string templates are refused in the package that is being compiled.
pub(crate) fn declared_only() -> bool {
    let on = env::var(VARIABLE).is_ok_and(|value| !matches!(value.as_str(), "" | "0"));
    on && !env::var_os("CARGO_MANIFEST_DIR").is_some_and(|package| is_foreign(Path::new(&package)))
}

/// Returns true if cargo has put this package there: from a registry, from git, or by `cargo vendor`.
///
/// Such packages belong to other people, and compile as they are. `CARGO_PRIMARY_PACKAGE` would exempt members that are
/// built as dependencies too.
fn is_foreign(package: &Path) -> bool {
    let marked = |folder: &Path| {
        [".cargo-ok", ".cargo-checksum.json"]
            .iter()
            .any(|mark| folder.join(mark).exists())
    };
    package.ancestors().any(marked)
}
