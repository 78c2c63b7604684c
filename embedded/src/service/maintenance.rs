//! Maintenance service: status, alarms and defragmentation. All other calls are refused as unknown.

use std::sync::Arc;

use etcd_client::proto::{
    PbAlarmRequest, PbAlarmResponse, PbDefragmentRequest, PbDefragmentResponse, PbDowngradeInfo,
    PbDowngradeRequest, PbDowngradeResponse, PbHashKvRequest, PbHashKvResponse, PbHashRequest,
    PbHashResponse, PbMaintenanceService, PbMoveLeaderRequest, PbMoveLeaderResponse,
    PbSnapshotRequest, PbSnapshotResponse, PbStatusRequest, PbStatusResponse,
};
use tonic::{Request, Response};

use super::{Answer, None, unknown};
use crate::shared::Shared;
use crate::store::{MEMBER_ID, VERSION};

const SERVICE: &str = "etcdserverpb.Maintenance";

/// Bytes that a new etcd's database has on disk. There is no disk here, but `etcdctl` divides by this size.
const SIZE: i64 = 20_480;

/// Bytes that etcd's database may have by default. The embedded etcd has no such limit.
const QUOTA: i64 = 2 << 30;

#[derive(Debug, Clone)]
pub(crate) struct Maintenance(pub(crate) Arc<Shared>);

#[tonic::async_trait]
impl PbMaintenanceService for Maintenance {
    type SnapshotStream = None<PbSnapshotResponse>;

    async fn status(&self, _: Request<PbStatusRequest>) -> Answer<PbStatusResponse> {
        let header = self.0.with(|state, _| state.store.header());
        // There is no log; the revision serves as its index.
        let index = u64::try_from(header.revision).unwrap_or_default();
        Ok(Response::new(PbStatusResponse {
            version: VERSION.to_owned(),
            leader: MEMBER_ID,
            raft_index: index,
            raft_applied_index: index,
            raft_term: header.raft_term,
            header: Some(header),
            db_size: SIZE,
            db_size_in_use: SIZE,
            db_size_quota: QUOTA,
            storage_version: "3.7.0".to_owned(),
            downgrade_info: Some(PbDowngradeInfo::default()),
            ..PbStatusResponse::default()
        }))
    }

    /// Responds that there is no alarm.
    async fn alarm(&self, _: Request<PbAlarmRequest>) -> Answer<PbAlarmResponse> {
        let header = self.0.with(|state, _| state.store.header());
        Ok(Response::new(PbAlarmResponse { header: Some(header), ..PbAlarmResponse::default() }))
    }

    /// Does nothing: there is nothing to defragment.
    async fn defragment(&self, _: Request<PbDefragmentRequest>) -> Answer<PbDefragmentResponse> {
        Ok(Response::new(PbDefragmentResponse::default()))
    }

    async fn hash(&self, _: Request<PbHashRequest>) -> Answer<PbHashResponse> {
        unknown(SERVICE, "Hash")
    }

    async fn hash_kv(&self, _: Request<PbHashKvRequest>) -> Answer<PbHashKvResponse> {
        unknown(SERVICE, "HashKV")
    }

    async fn snapshot(&self, _: Request<PbSnapshotRequest>) -> Answer<Self::SnapshotStream> {
        unknown(SERVICE, "Snapshot")
    }

    async fn move_leader(&self, _: Request<PbMoveLeaderRequest>) -> Answer<PbMoveLeaderResponse> {
        unknown(SERVICE, "MoveLeader")
    }

    async fn downgrade(&self, _: Request<PbDowngradeRequest>) -> Answer<PbDowngradeResponse> {
        unknown(SERVICE, "Downgrade")
    }
}
