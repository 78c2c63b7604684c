//! Values that every room names and that call no room: configuration, names, tokens, holder records, errors.

pub(crate) mod config;
pub(crate) mod cycle;
pub(crate) mod error;
pub(crate) mod holder;
pub(crate) mod name;
pub(crate) mod token;
pub(crate) mod wait;
