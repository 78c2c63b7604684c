//! Write to the store: collects changes that become one revision.

use std::sync::Arc;

use etcd_client::proto::{
    PbDeleteRequest, PbDeleteResponse, PbKeyValue, PbPutRequest, PbPutResponse, PbResponseHeader,
};

use super::Store;
use super::keys::Change;
use super::span::Span;

/// Write that makes all its changes one revision.
pub(super) struct Write<'a> {
    pub(super) store: &'a mut Store,
    changed: bool,
}

impl Store {
    pub(super) fn write<T>(&mut self, writing: impl FnOnce(&mut Write<'_>) -> T) -> T {
        let mut write = Write { store: self, changed: false };
        let made = writing(&mut write);
        if write.changed {
            self.revision += 1;
        }
        made
    }
}

impl Write<'_> {
    /// Returns the revision that reads see: after the first change, the new one.
    pub(super) fn revision(&self) -> i64 {
        self.store.revision + i64::from(self.changed)
    }

    fn record(&mut self, change: Change) {
        self.store.keys.record(change.clone());
        self.store.history.record(change);
        self.changed = true;
    }

    /// Puts a key; the request was checked.
    ///
    /// A from-key deletion in the same transaction may have removed the key whose value the put keeps. etcd crashes then;
    /// here the put keeps nothing.
    pub(super) fn put(
        &mut self,
        request: &PbPutRequest,
        header: impl FnOnce(i64) -> PbResponseHeader,
    ) -> PbPutResponse {
        let previous = self.store.keys.get(&request.key, self.revision()).cloned();
        let revision = self.store.revision + 1;
        let kept = previous.as_deref();
        let value = match kept {
            Some(kv) if request.ignore_value => &kv.value,
            _ => &request.value,
        };
        let lease = match kept {
            Some(kv) if request.ignore_lease => kv.lease,
            _ => request.lease,
        };
        let kv = PbKeyValue {
            key: request.key.clone(),
            value: value.clone(),
            create_revision: kept.map_or(revision, |kv| kv.create_revision),
            mod_revision: revision,
            version: kept.map_or(0, |kv| kv.version) + 1,
            lease,
        };
        let leases = &mut self.store.leases;
        if let Some(kv) = kept
            && kv.lease != lease
        {
            leases.detach(kv.lease, &kv.key);
        }
        if kept.is_none_or(|kv| kv.lease != lease) {
            leases.attach(lease, &kv.key);
        }
        self.record(Change { kv: Arc::new(kv), deleted: false });
        PbPutResponse {
            header: Some(header(revision)),
            prev_kv: previous.filter(|_| request.prev_kv).map(|kv| (*kv).clone()),
        }
    }

    pub(super) fn delete_range(
        &mut self,
        request: &PbDeleteRequest,
        header: impl FnOnce(i64) -> PbResponseHeader,
    ) -> PbDeleteResponse {
        let span = Span::new(&request.key, &request.range_end);
        let gone: Vec<_> = self.store.keys.range(span, self.revision()).cloned().collect();
        for kv in &gone {
            self.delete(kv);
        }
        PbDeleteResponse {
            header: Some(header(self.revision())),
            deleted: i64::try_from(gone.len()).unwrap_or(i64::MAX),
            prev_kvs: if request.prev_kv {
                gone.iter().map(|kv| (**kv).clone()).collect()
            } else {
                Vec::new()
            },
        }
    }

    /// Deletes one key, if it exists.
    pub(super) fn delete_key(&mut self, key: &[u8]) {
        if let Some(kv) = self.store.keys.get(key, self.revision()).cloned() {
            self.delete(&kv);
        }
    }

    fn delete(&mut self, kv: &PbKeyValue) {
        self.store.leases.detach(kv.lease, &kv.key);
        self.record(Change {
            kv: Arc::new(PbKeyValue {
                key: kv.key.clone(),
                mod_revision: self.store.revision + 1,
                ..PbKeyValue::default()
            }),
            deleted: true,
        });
    }
}
