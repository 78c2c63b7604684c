//! Frameworks, and attributes beside ours, as services use them. Each compiles, is called, and runs under its lock.

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
