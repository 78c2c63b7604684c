//! Annotated calls: the code that expansions of `#[etcd_locked]` run. Its methods are named after the options.
#![allow(missing_docs, missing_debug_implementations)]

#[allow(clippy::module_inception)] // the room is named for its main file
pub(crate) mod call;
pub(crate) mod detached;
pub(crate) mod outcome;
pub(crate) mod register;
