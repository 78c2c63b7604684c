//! Name tests without etcd: escaping is injective, a workspace may allow declared names only or have the runtime elsewhere, and the docs show good names.

// The modules that decide for `lock_names!`, by path: a proc-macro crate exports only macros.
#[allow(dead_code, unreachable_pub)]
#[path = "../../macros/src/overlap.rs"]
mod overlap;
#[allow(dead_code, unreachable_pub)]
#[path = "../../macros/src/template.rs"]
mod template;

mod declared_only;
mod escaping;
mod pages;
mod reexported;
mod workspace;
