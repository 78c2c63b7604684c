//! Real etcds for the comparison, in every run of the test suite.

#[path = "../../it/etcd/ports.rs"]
mod ports;
#[allow(dead_code)] // such as what stops and continues a process
#[path = "../../it/etcd/process.rs"]
mod process;
#[path = "../../it/etcd/tools.rs"]
mod tools;

use etcd_client::Client;

pub(crate) use self::process::Member as Etcd;
pub(crate) use self::tools::etcdctl;

/// Program that ends an etcd with the tests that have started it.
const GUARD: &str = env!("CARGO_BIN_EXE_guard");

impl Etcd {
    pub(crate) async fn client(&self) -> Client {
        let client = Client::connect([self.endpoint()], None).await;
        client.expect("etcd answers")
    }
}
