//! Keys.

use std::sync::Arc;

use etcd_client::proto::{
    PbCompactionRequest, PbCompactionResponse, PbDeleteRequest, PbDeleteResponse, PbKvService,
    PbPutRequest, PbPutResponse, PbRangeRequest, PbRangeResponse, PbRangeStreamResponse,
    PbTxnRequest, PbTxnResponse,
};
use tonic::{Request, Response};

use super::{Answer, None, unknown};
use crate::shared::Shared;

#[derive(Debug, Clone)]
pub(crate) struct Kv(pub(crate) Arc<Shared>);

#[tonic::async_trait]
impl PbKvService for Kv {
    type RangeStreamStream = None<PbRangeStreamResponse>;

    async fn range(&self, request: Request<PbRangeRequest>) -> Answer<PbRangeResponse> {
        let found = self.0.with(|state, _| state.store.range(request.get_ref()));
        Ok(Response::new(found?))
    }

    /// Of later releases.
    async fn range_stream(&self, _: Request<PbRangeRequest>) -> Answer<Self::RangeStreamStream> {
        unknown("etcdserverpb.KV", "RangeStream")
    }

    async fn put(&self, request: Request<PbPutRequest>) -> Answer<PbPutResponse> {
        let put = self.0.with(|state, _| state.store.put(request.get_ref()));
        Ok(Response::new(put?))
    }

    async fn delete_range(&self, request: Request<PbDeleteRequest>) -> Answer<PbDeleteResponse> {
        let deleted = self
            .0
            .with(|state, _| state.store.delete_range(request.get_ref()));
        Ok(Response::new(deleted?))
    }

    async fn txn(&self, request: Request<PbTxnRequest>) -> Answer<PbTxnResponse> {
        let done = self.0.with(|state, _| state.store.txn(request.get_ref()));
        Ok(Response::new(done?))
    }

    async fn compact(&self, request: Request<PbCompactionRequest>) -> Answer<PbCompactionResponse> {
        let compacted = self
            .0
            .with(|state, _| state.store.compact(request.get_ref()));
        Ok(Response::new(compacted?))
    }
}
