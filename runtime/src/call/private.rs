//! Items that expansions of `#[etcd_locked]` use. Not for use by hand: they change with every version.

pub use crate::api::{Exclusive, Permit, Proof, Shared, prove};
pub use crate::call::call::{Hold, Lock, Site, hold, lock, unlocked};
pub use crate::call::detached::{Detached, detach};
pub use crate::call::outcome::{
    Fallible, Outcome, Skip, Skipped, finish, map_err, on_error, skip, skip_held,
};
pub use crate::values::{Wait, name_of, render as name};
pub use etcd_locked_macros::lock_names;
