//! Configuration: where etcd is and how to lock by default.

mod builder;
mod check;
mod connector;
mod env;
mod hidden;
#[cfg(feature = "tls")]
mod tls;

pub use builder::Config;
#[cfg(feature = "tls")]
pub use tls::Tls;

pub(crate) use check::{check_at_least, check_ttl, is_endpoint};
pub(crate) use connector::Connector;
