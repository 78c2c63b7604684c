//! Values that every room uses and that call no room: configuration, names, tokens, holder records, errors.

mod backend;
mod config;
mod cycle;
mod drained;
mod error;
mod holder;
mod loss;
mod methods;
mod name;
mod queue;
mod text;
mod token;
mod versions;

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

pub(crate) use backend::{BackendError, is_permanent};
pub(crate) use config::{Connector, Source, check_min_hold, check_ttl, is_endpoint};
pub(crate) use holder::{Author, held_after};
pub(crate) use methods::{getters, setters};
pub(crate) use name::{RUN_TIME, templates};
pub(crate) use queue::Queues;
pub(crate) use text::{KEY, chain, shown};
