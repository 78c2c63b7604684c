//! Router: passes each gRPC request to the service that its path names.

use std::convert::Infallible;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use etcd_client::proto::{PbClusterServer, PbLeaseServer, PbMaintenanceServer, PbWatchServer};
use tonic::Status;
use tonic::body::Body;
use tower::Service;

use crate::service::{Cluster, Kv, Lease, Maintenance, Watch, auth_status};
use crate::shared::Shared;

pub(crate) type Request = http::Request<Body>;
pub(crate) type Response = http::Response<Body>;
pub(crate) type Responding<E> = Pin<Box<dyn Future<Output = Result<Response, E>> + Send>>;

/// All services of one etcd. Cheap to clone: clients clone it for every call.
#[derive(Debug, Clone)]
pub(crate) struct Router(Arc<Services>);

#[derive(Debug)]
struct Services {
    kv: Kv,
    lease: PbLeaseServer<Lease>,
    watch: PbWatchServer<Watch>,
    maintenance: PbMaintenanceServer<Maintenance>,
    cluster: PbClusterServer<Cluster>,
}

impl Router {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self(Arc::new(Services {
            kv: Kv(Arc::clone(shared)),
            lease: PbLeaseServer::new(Lease(Arc::clone(shared))),
            watch: PbWatchServer::new(Watch(Arc::clone(shared))),
            maintenance: PbMaintenanceServer::new(Maintenance(Arc::clone(shared))),
            cluster: PbClusterServer::new(Cluster(Arc::clone(shared))),
        }))
    }
}

impl Service<Request> for Router {
    type Response = Response;
    type Error = Infallible;
    type Future = Responding<Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let path = request.uri().path();
        let service = path.trim_start_matches('/').split('/').next();
        match service.unwrap_or_default() {
            "etcdserverpb.KV" => Box::pin(self.0.kv.clone().answer(request)),
            "etcdserverpb.Lease" => self.0.lease.clone().call(request),
            "etcdserverpb.Watch" => self.0.watch.clone().call(request),
            "etcdserverpb.Maintenance" => self.0.maintenance.clone().call(request),
            "etcdserverpb.Cluster" => self.0.cluster.clone().call(request),
            "etcdserverpb.Auth" if path.ends_with("/AuthStatus") => {
                Box::pin(ready(Ok(auth_status(&self.0.kv.0))))
            }
            other => {
                let status = Status::unimplemented(format!("unknown service {other}"));
                Box::pin(ready(Ok(status.into_http())))
            }
        }
    }
}
