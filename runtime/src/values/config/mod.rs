//! Configuration: where etcd is and how to lock by default.

mod builder;
mod check;
mod connector;
mod credentials;
mod env;
mod files;
mod hidden;
mod source;
#[cfg(feature = "tls")]
mod tls;

pub use builder::Config;
pub use credentials::Credentials;
#[cfg(feature = "tls")]
pub use tls::Tls;

pub(crate) use check::{check_at_least, check_ttl, is_endpoint};
pub(crate) use connector::Connector;
pub(crate) use source::Source;
