//! What can be shown of names without etcd: that escaping is injective, and what a whole team may decide.

// The very rule `lock_names!` decides by; a proc-macro crate exports nothing but macros.
#[allow(dead_code, unreachable_pub)]
#[path = "../../macros/src/overlap.rs"]
mod overlap;
#[allow(dead_code, unreachable_pub)]
#[path = "../../macros/src/template.rs"]
mod template;

mod declared_only;
mod escaping;
