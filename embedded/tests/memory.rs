//! In-memory client tests: watches, keep-alives, and the faults of a link. They run in tokio's paused time.

use std::time::Duration;

use etcd_client::proto::PbPutRequest;
use etcd_client::{
    Client, Error, EventType, GetOptions, PutOptions, WatchOptions, WatchResponse, WatchStream,
};
use etcd_locked_embedded::{Etcd, Link, store::Store};
use tokio::time::{Instant, timeout};
use tonic::Code;

/// Time limit, longer than anything can take in paused time.
const NEVER: Duration = Duration::from_secs(3_600);

async fn next(watch: &mut WatchStream) -> WatchResponse {
    timeout(NEVER, watch.message())
        .await
        .expect("a response")
        .expect("no error")
        .expect("the stream goes on")
}

/// Shows a response: `revision: created +key=value -key …`.
fn read(response: &WatchResponse) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut shown = vec![format!("{}:", response.header().expect("a header").revision())];
    shown.extend(response.created().then(|| "created".to_owned()));
    for event in response.events() {
        let kv = event.kv().expect("a key");
        shown.push(match event.event_type() {
            EventType::Put => format!("+{}={}", text(kv.key()), text(kv.value())),
            EventType::Delete => format!("-{}", text(kv.key())),
        });
    }
    shown.join(" ")
}

fn code(error: Error) -> (Code, String) {
    match error {
        Error::GRpcStatus(status) => (status.code(), status.message().to_owned()),
        other => panic!("{other:?}"),
    }
}

async fn watch(client: &mut Client, key: &str, options: WatchOptions) -> WatchStream {
    let watch = client.watch(key, Some(options)).await;
    let mut watch = watch.expect("a stream");
    let created = next(&mut watch).await;
    assert!(created.created());
    watch
}

fn all() -> WatchOptions {
    WatchOptions::new().with_all_keys()
}

#[tokio::test(start_paused = true)]
async fn progress_comes_on_request_and_while_quiet() {
    let mut client = Etcd::new().client().await;
    let mut stream = watch(&mut client, "a", WatchOptions::new()).await;
    client.put("b", "", None).await.unwrap();
    stream.request_progress().await.unwrap();
    let progress = next(&mut stream).await;
    assert_eq!((progress.watch_id(), &*read(&progress)), (-1, "2:"));

    stream.watch("a", Some(all().with_start_revision(1))).await.unwrap();
    stream.request_progress().await.unwrap();
    let mut read_on = async || read(&next(&mut stream).await);
    assert_eq!(read_on().await, "2: created");
    assert_eq!(read_on().await, "2: +b=", "what is behind comes first");
    assert_eq!(read_on().await, "2:");

    let start = Instant::now();
    let mut quiet = watch(&mut client, "", all().with_progress_notify()).await;
    assert_eq!(read(&next(&mut quiet).await), "2:");
    assert_eq!(start.elapsed().as_secs(), 600);
}

#[tokio::test(start_paused = true)]
async fn leases_expire_while_only_a_watch_waits() {
    let mut client = Etcd::new().client().await;
    let mut watch = watch(&mut client, "", all()).await;
    let lease = client.lease_grant(5, None).await.unwrap().id();
    let on_it = || Some(PutOptions::new().with_lease(lease));
    client.put("b", "", on_it()).await.unwrap();
    client.put("a", "", on_it()).await.unwrap();
    next(&mut watch).await;
    next(&mut watch).await;
    let start = Instant::now();
    assert_eq!(read(&next(&mut watch).await), "4: -a -b");
    assert_eq!(start.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn keep_alives_renew_with_unread_answers() {
    let mut client = Etcd::new().client().await;
    let lease = client.lease_grant(5, None).await.unwrap().id();
    let (mut keeper, mut answers) = client.lease_keep_alive(lease).await.unwrap();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(4)).await;
        keeper.keep_alive().await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(4)).await;
    let left = client.lease_time_to_live(lease, None).await.unwrap();
    assert_eq!((left.ttl(), left.granted_ttl()), (1, 5));
    for _ in 0..3 {
        assert_eq!(answers.message().await.unwrap().unwrap().ttl(), 5);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    keeper.keep_alive().await.unwrap();
    assert_eq!(answers.message().await.unwrap().unwrap().ttl(), 0);
}

#[tokio::test(start_paused = true)]
async fn watches_receive_an_operators_changes() {
    let etcd = Etcd::new();
    let mut client = etcd.client().await;
    let mut watch = watch(&mut client, "", all()).await;
    let put = PbPutRequest { key: b"a".into(), ..PbPutRequest::default() };
    etcd.with_store(|store| store.put(&put).map(drop)).unwrap();
    assert_eq!(read(&next(&mut watch).await), "2: +a=");
    etcd.with_store(|store| *store = Store::new());
    assert_eq!(client.get("a", None).await.unwrap().count(), 0);
    let ended = watch.message().await.map(drop).unwrap_err();
    assert_eq!(code(ended).0, Code::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn slow_watch_misses_nothing() {
    let etcd = Etcd::new();
    let mut client = etcd.client().await;
    let mut watch = watch(&mut client, "", all()).await;
    for n in 0..3_000 {
        client.put("n", n.to_string(), None).await.unwrap();
    }
    let mut seen = 0;
    while seen < 3_000 {
        for event in next(&mut watch).await.events() {
            assert_eq!(event.kv().unwrap().value(), seen.to_string().as_bytes());
            seen += 1;
        }
    }
    client.put("n", "live", None).await.unwrap();
    assert_eq!(read(&next(&mut watch).await), "3002: +n=live");
}

#[tokio::test(start_paused = true)]
async fn link_down_refuses_new_calls_and_breaks_open_ones() {
    let etcd = Etcd::new();
    let link = etcd.link();
    let (mut client, mut operator) = (link.client(None).await.unwrap(), etcd.client().await);
    let mut watch = watch(&mut client, "", all()).await;
    let lease = client.lease_grant(60, None).await.unwrap().id();
    let (mut keeper, mut kept) = client.lease_keep_alive(lease).await.unwrap();
    for hold in [Link::cut, |link: &Link| link.delay(NEVER)] {
        hold(&link);
        let mut other = client.clone();
        let under_way = tokio::spawn(async move { other.put("under-way", "", None).await });
        tokio::task::yield_now().await;
        link.down();
        let broken = code(under_way.await.unwrap().unwrap_err());
        assert_eq!(broken.0, Code::Unknown, "it may have been applied");
        let refused = code(client.put("refused", "", None).await.unwrap_err());
        assert_eq!(refused.0, Code::Unavailable);
        assert!(refused.1.starts_with("tcp connect error"), "{}", refused.1);
        link.up();
        link.heal();
        link.delay(Duration::ZERO);
    }
    let ended = timeout(NEVER, watch.message()).await.expect("the break");
    assert_eq!(code(ended.unwrap_err()).0, Code::Unavailable);
    assert!(keeper.keep_alive().await.is_err() || kept.message().await.is_err());
    client.put("a", "", None).await.unwrap();
    let everything = operator.get("", Some(GetOptions::new().with_all_keys()));
    assert_eq!(everything.await.unwrap().count(), 1, "only what was let through");
}

#[tokio::test(start_paused = true)]
async fn frozen_keep_alives_let_a_lease_expire() {
    let etcd = Etcd::new();
    let link = etcd.link();
    let mut client = link.client(None).await.unwrap();
    let lease = client.lease_grant(5, None).await.unwrap().id();
    let (mut keeper, mut answers) = client.lease_keep_alive(lease).await.unwrap();
    link.freeze_keepalives(true);
    keeper.keep_alive().await.unwrap();
    let silence = timeout(Duration::from_secs(4), answers.message()).await;
    assert!(silence.is_err());
    assert_eq!(client.leases().await.unwrap().leases().len(), 1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(client.leases().await.unwrap().leases().len(), 0);
    link.freeze_keepalives(false);
    assert_eq!(answers.message().await.unwrap().unwrap().ttl(), 0);
}
