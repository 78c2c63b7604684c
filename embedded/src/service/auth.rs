//! Auth service: only `AuthStatus`, because the embedded etcd has no users or roles.

use etcd_client::proto::PbResponseHeader;

use super::frame::written;
use crate::router::Response;
use crate::shared::Shared;

/// etcdserverpb.AuthStatusResponse, which etcd-client does not export.
#[derive(Clone, PartialEq, prost::Message)]
struct AuthStatus {
    #[prost(message, optional, tag = "1")]
    header: Option<PbResponseHeader>,
    #[prost(bool, tag = "2")]
    enabled: bool,
    #[prost(uint64, tag = "3")]
    auth_revision: u64,
}

/// Returns the status of a new etcd: authentication is off.
pub(crate) fn auth_status(shared: &Shared) -> Response {
    written(&AuthStatus {
        header: Some(shared.with(|state, _| state.store.header())),
        enabled: false,
        auth_revision: 1,
    })
}
