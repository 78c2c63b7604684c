//! Listing of names: it reads page by page, at one revision.

use etcd_client::CompactionOptions;
use etcd_locked::Listing;

use crate::corner::{Corner, connect};
use crate::etcd::Etcd;
use crate::limit;

/// More names than one page holds.
const NAMES: usize = 300;

/// Puts a contender for each of many names, and two on different pages for the name above them.
async fn put(corner: &Corner) {
    let mut client = corner.client.clone();
    let below = (1..NAMES).map(|n| format!("{n:03}/1f"));
    for key in below.chain(["1f".to_owned(), "ff".to_owned()]) {
        let key = format!("{}jobs/{key}", corner.prefix);
        client.put(key, "", None).await.expect("a put");
    }
}

/// Reads the first name, then puts a contender for a name that sorts last; returns the revision.
async fn first_of(corner: &Corner, names: &mut Listing) -> i64 {
    names.next().await.expect("etcd answers").expect("a name");
    let key = format!("{}jobs/late/1f", corner.prefix);
    let put = corner.client.clone().put(key, "", None).await;
    put.expect("a put").header().expect("a header").revision()
}

/// Counts the remaining names.
async fn count(names: &mut Listing) -> usize {
    let mut many = 0;
    while names.next().await.expect("etcd answers").is_some() {
        many += 1;
    }
    many
}

#[limit::test]
async fn listing_goes_on_when_its_revision_is_compacted() {
    let etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    put(&corner).await;
    let mut names = corner.locks().await.list("");
    let revision = first_of(&corner, &mut names).await;
    let options = CompactionOptions::new().with_physical();
    let mut client = corner.client.clone();
    client.compact(revision, Some(options)).await.unwrap();
    assert_eq!(count(&mut names).await, NAMES, "with the late one");
}

#[limit::test]
async fn listing_keeps_its_revision_through_an_outage() {
    let (corner, proxy) = Corner::with_proxy().await;
    put(&corner).await;
    let locks = connect(corner.config_via([proxy.endpoint()])).await;
    let mut names = locks.list("");
    first_of(&corner, &mut names).await;
    proxy.refuse();
    proxy.reset_all();
    let mut many = 1;
    while let Ok(name) = names.next().await {
        assert!(name.is_some(), "the rest was read from nowhere");
        many += 1;
    }
    proxy.accept_again().unwrap();
    many += count(&mut names).await;
    assert_eq!(many, NAMES, "without the late one");
}
