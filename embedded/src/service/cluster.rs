//! Cluster service: lists the only member, and refuses all changes of membership.

use std::sync::Arc;

use etcd_client::proto::{
    PbClusterService, PbMember, PbMemberAddRequest, PbMemberAddResponse, PbMemberListRequest,
    PbMemberListResponse, PbMemberPromoteRequest, PbMemberPromoteResponse, PbMemberRemoveRequest,
    PbMemberRemoveResponse, PbMemberUpdateRequest, PbMemberUpdateResponse, PbResponseHeader,
};
use tonic::{Request, Response};

use super::{Answer, unknown};
use crate::shared::Shared;
use crate::store::MEMBER_ID;

const SERVICE: &str = "etcdserverpb.Cluster";

#[derive(Debug, Clone)]
pub(crate) struct Cluster(pub(crate) Arc<Shared>);

#[tonic::async_trait]
impl PbClusterService for Cluster {
    async fn member_list(&self, _: Request<PbMemberListRequest>) -> Answer<PbMemberListResponse> {
        let member = PbMember {
            id: MEMBER_ID,
            name: "embedded".to_owned(),
            client_ur_ls: self.0.addresses().clone(),
            ..PbMember::default()
        };
        // etcd leaves the revision out of this header.
        let header =
            PbResponseHeader { revision: 0, ..self.0.with(|state, _| state.store.header()) };
        Ok(Response::new(PbMemberListResponse { header: Some(header), members: vec![member] }))
    }

    async fn member_add(&self, _: Request<PbMemberAddRequest>) -> Answer<PbMemberAddResponse> {
        unknown(SERVICE, "MemberAdd")
    }

    async fn member_remove(
        &self,
        _: Request<PbMemberRemoveRequest>,
    ) -> Answer<PbMemberRemoveResponse> {
        unknown(SERVICE, "MemberRemove")
    }

    async fn member_update(
        &self,
        _: Request<PbMemberUpdateRequest>,
    ) -> Answer<PbMemberUpdateResponse> {
        unknown(SERVICE, "MemberUpdate")
    }

    async fn member_promote(
        &self,
        _: Request<PbMemberPromoteRequest>,
    ) -> Answer<PbMemberPromoteResponse> {
        unknown(SERVICE, "MemberPromote")
    }
}
