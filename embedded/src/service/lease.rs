//! Lease service: grant, revoke, keep-alive, time-to-live and the list of leases.

use std::sync::Arc;

use etcd_client::proto::{
    PbLeaseGrantRequest, PbLeaseGrantResponse, PbLeaseKeepAliveRequest, PbLeaseKeepAliveResponse,
    PbLeaseLeasesRequest, PbLeaseLeasesResponse, PbLeaseRevokeRequest, PbLeaseRevokeResponse,
    PbLeaseService, PbLeaseTimeToLiveRequest, PbLeaseTimeToLiveResponse,
};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::{Answer, NO_RUNTIME};
use crate::shared::Shared;

/// Limit of responses that wait for a client to read them. At the limit its renewals wait too, as behind a full connection.
const MOST_QUEUED: usize = 1_024;

#[derive(Debug, Clone)]
pub(crate) struct Lease(pub(crate) Arc<Shared>);

#[tonic::async_trait]
impl PbLeaseService for Lease {
    type LeaseKeepAliveStream = ReceiverStream<Result<PbLeaseKeepAliveResponse, Status>>;

    async fn lease_grant(
        &self,
        request: Request<PbLeaseGrantRequest>,
    ) -> Answer<PbLeaseGrantResponse> {
        let granted = self.0.with(|state, now| state.store.lease_grant(now, request.get_ref()));
        Ok(Response::new(granted?))
    }

    async fn lease_revoke(
        &self,
        request: Request<PbLeaseRevokeRequest>,
    ) -> Answer<PbLeaseRevokeResponse> {
        let revoked = self.0.with(|state, _| state.store.lease_revoke(request.get_ref()));
        Ok(Response::new(revoked?))
    }

    /// Renews as requests arrive, whether or not the client reads the responses.
    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<PbLeaseKeepAliveRequest>>,
    ) -> Answer<Self::LeaseKeepAliveStream> {
        let runtime = Handle::try_current().map_err(|_| Status::internal(NO_RUNTIME))?;
        let (answers, answered) = mpsc::channel(MOST_QUEUED);
        let shared = Arc::clone(&self.0);
        let mut requests = request.into_inner();
        runtime.spawn(async move {
            loop {
                let request = tokio::select! {
                    request = requests.message() => request,
                    () = answers.closed() => return,
                };
                let Ok(Some(request)) = request else { return };
                let answer =
                    shared.with(|state, now| state.store.lease_keep_alive(now, request.id));
                if answers.send(Ok(answer)).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(answered)))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<PbLeaseTimeToLiveRequest>,
    ) -> Answer<PbLeaseTimeToLiveResponse> {
        let left = self.0.with(|state, now| state.store.lease_time_to_live(now, request.get_ref()));
        Ok(Response::new(left))
    }

    async fn lease_leases(
        &self,
        _: Request<PbLeaseLeasesRequest>,
    ) -> Answer<PbLeaseLeasesResponse> {
        let leases = self.0.with(|state, _| state.store.lease_leases());
        Ok(Response::new(leases))
    }
}
