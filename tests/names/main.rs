//! Name tests without etcd: escaping is injective, strings are told from declared names, and all pages of the book are compiled.

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
