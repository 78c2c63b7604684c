//! etcd's services over gRPC: each only hands on to the store.

mod cluster;
mod frame;
mod kv;
mod lease;
mod maintenance;
mod watch;

pub(crate) use self::cluster::Cluster;
pub(crate) use self::kv::Kv;
pub(crate) use self::lease::Lease;
pub(crate) use self::maintenance::Maintenance;
pub(crate) use self::watch::Watch;

use std::pin::Pin;

use tokio_stream::Stream;
use tonic::{Response, Status};

/// What a call answers.
type Answer<T> = Result<Response<T>, Status>;

/// A stream that there is not.
type None<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// As gRPC says of what a server does not know.
fn unknown<T>(service: &str, method: &str) -> Result<T, Status> {
    Err(Status::unimplemented(format!(
        "unknown method {method} for service {service}"
    )))
}

/// Streams are served by a task.
const NO_RUNTIME: &str = "an embedded etcd serves streams only to clients inside a tokio runtime";
