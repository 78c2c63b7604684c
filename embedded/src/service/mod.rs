//! gRPC services of the embedded etcd; each passes its requests to the store.

mod auth;
mod cluster;
mod frame;
mod kv;
mod lease;
mod maintenance;
mod watch;

pub(crate) use self::auth::auth_status;
pub(crate) use self::cluster::Cluster;
pub(crate) use self::kv::Kv;
pub(crate) use self::lease::Lease;
pub(crate) use self::maintenance::Maintenance;
pub(crate) use self::watch::Watch;

use std::pin::Pin;

use tokio_stream::Stream;
use tonic::{Response, Status};

/// Response to a call.
type Answer<T> = Result<Response<T>, Status>;

/// Stream of a call that is not served.
type None<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Refuses a method with gRPC's message for an unknown one.
fn unknown<T>(service: &str, method: &str) -> Result<T, Status> {
    Err(Status::unimplemented(format!("unknown method {method} for service {service}")))
}

/// Refusal of streams outside a tokio runtime, because a task serves them.
const NO_RUNTIME: &str = "an embedded etcd serves streams only to clients inside a tokio runtime";
