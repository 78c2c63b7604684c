//! Real etcds for the comparison, in every run of the test suite.

use etcd_client::Client;
use etcd_locked_devkit::Member;
use etcd_locked_devkit::limit::blocking;

pub(crate) use etcd_locked_devkit::binary::etcdctl;

/// Starts an etcd.
pub(crate) async fn start() -> Member {
    blocking(Member::start).await
}

/// Connects a client of the test's own.
pub(crate) async fn client(etcd: &Member) -> Client {
    let client = Client::connect([etcd.endpoint()], None).await;
    client.expect("etcd answers")
}
