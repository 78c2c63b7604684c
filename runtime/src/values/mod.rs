//! Values that every room names and that call no room: configuration, names, tokens, holder records, errors.

pub(crate) mod backend;
pub(crate) mod config;
pub(crate) mod cycle;
pub(crate) mod drained;
pub(crate) mod error;
pub(crate) mod holder;
pub(crate) mod loss;
pub(crate) mod name;
pub(crate) mod queue;
pub(crate) mod text;
pub(crate) mod token;
pub(crate) mod versions;
pub(crate) mod wait;
