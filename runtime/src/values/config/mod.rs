//! Configuration: where etcd is, and the defaults for locks.

mod builder;
mod check;
mod connector;
mod credentials;
mod endpoint;
mod env;
mod source;

pub use builder::Config;
pub use credentials::Credentials;
#[cfg(feature = "tls")]
pub use credentials::Tls;

pub(crate) use check::{check_min_hold, check_ttl};
pub(crate) use connector::Connector;
pub(crate) use endpoint::is_endpoint;
pub(crate) use source::Source;

use check::check_prefix;
use endpoint::{Endpoints, HIDDEN, check_endpoint, url};
use source::{File, Files, Provider};
