//! Keys of locks in etcd, as an operator sees and changes them.

use std::collections::{BTreeMap, HashSet};

use etcd_client::proto::{
    PbCompactionRequest, PbDeleteRequest, PbKeyValue, PbLeaseRevokeRequest, PbRangeRequest,
};
use etcd_locked_core::session_root;
use etcd_locked_embedded::Etcd;
use etcd_locked_embedded::store::Store;

use crate::engine::Names;

/// Deletes the key that owns the name, if there is one.
pub(super) fn delete_owner(etcd: &Etcd, prefix: &str, name: &str) -> bool {
    etcd.with_store(|store| {
        let contenders = contenders(store, prefix).remove(name).unwrap_or_default();
        contenders.into_iter().next().is_some_and(|owner| {
            let request = PbDeleteRequest { key: owner.key, ..PbDeleteRequest::default() };
            store.delete_range(&request).is_ok()
        })
    })
}

pub(super) fn revoke_all(etcd: &Etcd) {
    etcd.with_store(|store| {
        for lease in store.lease_leases().leases {
            // Fails only if the lease is gone.
            let _ = store.lease_revoke(&PbLeaseRevokeRequest { id: lease.id });
        }
    });
}

pub(super) fn compact(etcd: &Etcd) {
    etcd.with_store(|store| {
        let request = PbCompactionRequest { revision: store.revision(), physical: true };
        // Fails only if nothing has happened since the last time.
        let _ = store.compact(&request);
    });
}

/// Returns the names that other kinds of clients hold and wait for, and those that `min_hold` keeps after a shutdown. Their leases lack
/// the session key that our engines have.
pub(super) fn foreign(etcd: &Etcd, prefix: &str) -> Names {
    etcd.with_store(|store| {
        let sessions = below(store, &session_root(prefix));
        let sessions: HashSet<i64> = sessions.iter().map(|kv| kv.lease).collect();
        let mut names = Names::default();
        for (name, contenders) in contenders(store, prefix) {
            for (place, contender) in contenders.iter().enumerate() {
                if contender.lease != 0 && sessions.contains(&contender.lease) {
                    continue;
                }
                match place {
                    0 => names.held.push(name.clone()),
                    _ => names.waiting.push(name.clone()),
                }
            }
        }
        names
    })
}

/// Returns the keys that contend for each name, oldest first (rules P1, P2).
fn contenders(store: &Store, prefix: &str) -> BTreeMap<String, Vec<PbKeyValue>> {
    let mut names: BTreeMap<String, Vec<PbKeyValue>> = BTreeMap::new();
    for kv in below(store, prefix) {
        let key = String::from_utf8_lossy(&kv.key);
        let name = key.strip_prefix(prefix).and_then(|key| key.rsplit_once('/'));
        if let Some((name, _)) = name {
            names.entry(name.to_owned()).or_default().push(kv);
        }
    }
    for contenders in names.values_mut() {
        contenders.sort_by_key(|kv| kv.create_revision);
    }
    names
}

fn below(store: &Store, prefix: &str) -> Vec<PbKeyValue> {
    let mut range_end = prefix.as_bytes().to_vec();
    if let Some(last) = range_end.last_mut() {
        *last += 1; // a prefix ends in `/`
    }
    let request =
        PbRangeRequest { key: prefix.as_bytes().to_vec(), range_end, ..PbRangeRequest::default() };
    store.range(&request).map(|found| found.kvs).unwrap_or_default()
}
