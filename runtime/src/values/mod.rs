//! Values that every room names and that call no room: configuration, names, tokens, holder records, errors.

pub(crate) mod backend;
pub(crate) mod config;
pub(crate) mod cycle;
pub(crate) mod drained;
pub(crate) mod error;
pub(crate) mod holder;
pub(crate) mod loss;
mod methods;
pub(crate) mod name;
pub(crate) mod queue;
pub(crate) mod text;
pub(crate) mod token;
pub(crate) mod versions;

#[cfg(feature = "tls")]
pub use config::Tls;
pub use config::{Config, Credentials};
pub use cycle::Cycle;
pub use drained::Drained;
pub use error::LockError;
pub use etcd_locked_core::Wait;
pub use holder::Holder;
pub use loss::LossCause;
pub use name::{LockKey, LockName, Name, Segment, name_of, render};
pub use queue::{Contender, Queue, Sharing, Standing};
pub use token::Token;
pub use versions::{RECOMMENDED_ETCD, etcd_bugs};

pub(crate) use backend::is_permanent;
pub(crate) use config::{check_at_least, check_ttl};
pub(crate) use methods::{getters, setters};
pub(crate) use name::templates;
pub(crate) use queue::Queues;
pub(crate) use text::{KEY, shown};
