//! TCP tests: a served etcd is the same one as in memory, and the binary serves an etcd.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use etcd_client::{Client, Error, WatchOptions};
use etcd_locked_embedded::Etcd;
use tokio::net::TcpListener;
use tokio::time::timeout;

/// Limit of every wait, far longer than any of them takes.
const LIMIT: Duration = Duration::from_secs(20);

async fn connect(url: &str) -> Client {
    Client::connect([url], None).await.expect("a client")
}

#[tokio::test]
async fn tcp_and_memory_reach_the_same_etcd() {
    let etcd = Etcd::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = etcd.clone();
    let serving = tokio::spawn(async move { served.serve(listener).await });
    let (mut remote, mut local) = (connect(&url).await, etcd.client().await);

    let everything = WatchOptions::new().with_all_keys();
    let mut watch = remote.watch("", Some(everything)).await.unwrap();
    assert!(watch.message().await.unwrap().unwrap().created());
    local.put("a", "1", None).await.unwrap();
    let event = timeout(LIMIT, watch.message()).await.unwrap();
    assert_eq!(event.unwrap().unwrap().events().len(), 1);
    assert_eq!(remote.get("a", None).await.unwrap().count(), 1);
    let lease = remote.lease_grant(5, None).await.unwrap().id();
    let (mut keeper, mut answers) = remote.lease_keep_alive(lease).await.unwrap();
    keeper.keep_alive().await.unwrap();
    assert_eq!(answers.message().await.unwrap().unwrap().ttl(), 5);
    let members = remote.member_list().await.unwrap();
    assert_eq!(members.members()[0].client_urls(), [url.as_str()]);
    match remote.lock("a", None).await.map(drop) {
        Err(Error::GRpcStatus(status)) => assert_eq!(status.code(), tonic::Code::Unimplemented),
        other => panic!("{other:?}"),
    }

    serving.abort();
    assert!(serving.await.unwrap_err().is_cancelled());
    let ended = timeout(LIMIT, watch.message()).await.unwrap();
    assert!(!matches!(ended, Ok(Some(_))), "the connection is closed");
    let members = local.member_list().await.unwrap();
    assert!(members.members()[0].client_urls().is_empty());
    assert_eq!(local.get("a", None).await.unwrap().count(), 1);
}

/// Process of the binary, which ends with the test.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn binary(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_etcd-locked-embedded"));
    command.args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[tokio::test]
async fn binary_listens_until_sigterm() {
    let mut served = Served(binary(&["--listen", "127.0.0.1:0"]).spawn().unwrap());
    let mut line = String::new();
    let mut output = BufReader::new(served.0.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("listening on ").unwrap();
    let mut client = connect(url).await;
    assert_eq!(client.put("a", "", None).await.unwrap().header().unwrap().revision(), 2);

    let taken = url.strip_prefix("http://").unwrap();
    let refused = binary(&["--listen", taken]).output().unwrap();
    let message = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        message.starts_with(&format!("etcd-locked-embedded: cannot listen on {taken}: "))
            && message.contains("choose another port with --listen"),
        "{message}"
    );

    let ended = Command::new("kill").arg(served.0.id().to_string()).status();
    assert!(ended.unwrap().success());
    assert!(served.0.wait().unwrap().success());
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "", "one line");
}
