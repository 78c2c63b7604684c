//! Tests of names without etcd: escaping is injective, strings differ from declared names, and all pages of the book compile.

// The modules that decide for `lock_names!`, by path: a proc-macro crate exports only macros.
#[allow(dead_code, unreachable_pub)]
#[path = "../../macros/src/overlap.rs"]
mod overlap;
#[allow(dead_code, unreachable_pub)]
#[path = "../../macros/src/template.rs"]
mod template;

mod book;
mod declared;
mod escaping;
