//! `ETCD_LOCKED_DECLARED_ONLY`: a team's decision that every lock name is declared by `lock_names!`.

use std::env;
use std::path::Path;

/// Set by `[env]` in the workspace's `.cargo/config.toml`.
pub(crate) const VARIABLE: &str = "ETCD_LOCKED_DECLARED_ONLY";

/// Whether string templates are refused in the package that is being compiled.
pub(crate) fn declared_only() -> bool {
    let on = env::var(VARIABLE).is_ok_and(|value| !matches!(value.as_str(), "" | "0"));
    on && !env::var_os("CARGO_MANIFEST_DIR").is_some_and(|package| is_foreign(Path::new(&package)))
}

/// Whether cargo has put this package there: from a registry, from git, or by `cargo vendor`. Those are other people's,
/// and compile as they are; `CARGO_PRIMARY_PACKAGE` would leave out members that are built as dependencies.
fn is_foreign(package: &Path) -> bool {
    let marked = |folder: &Path| {
        [".cargo-ok", ".cargo-checksum.json"]
            .iter()
            .any(|mark| folder.join(mark).exists())
    };
    package.ancestors().any(marked)
}
