//! Range requests: read keys, filtered, sorted and limited.

use std::cmp::Ordering;
use std::sync::Arc;

use etcd_client::proto::{PbKeyValue, PbRangeRequest, PbRangeResponse, PbResponseHeader};
use etcd_client::{SortOrder, SortTarget};

use super::span::Span;
use super::{Refusal, Store, check};

impl Store {
    /// Reads keys, at the current or an earlier revision.
    ///
    /// # Errors
    ///
    /// The request lacks a key or is too large, its sort target is unknown, or its revision is compacted or not reached yet.
    pub fn range(&self, request: &PbRangeRequest) -> Result<PbRangeResponse, Refusal> {
        check::sent(request)?;
        check::range(request)?;
        if request.revision > self.revision {
            return Err(Refusal::FUTURE_REVISION.into());
        }
        if request.revision > 0 && request.revision < self.compacted {
            return Err(Refusal::COMPACTED.into());
        }
        Ok(self.read(request, self.revision, self.header()))
    }

    /// Serves a range whose revision is within the limits. `current` is the current revision, or the next one in a
    /// transaction that has already written.
    pub(super) fn read(
        &self,
        request: &PbRangeRequest,
        current: i64,
        header: PbResponseHeader,
    ) -> PbRangeResponse {
        let revision = match request.revision {
            ..=0 => current,
            past => past,
        };
        let span = Span::new(&request.key, &request.range_end);
        let keys = self.keys.range(span, revision);
        if request.count_only {
            return PbRangeResponse {
                header: Some(header),
                count: count(keys.count()),
                ..PbRangeResponse::default()
            };
        }
        let limit = usize::try_from(request.limit).unwrap_or(0);
        let bounds = Bounds::of(request);
        let order = SortOrder::try_from(request.sort_order).unwrap_or(SortOrder::None);
        // Without an order and bounds, etcd takes the first keys by name, one more than the limit. Then it sorts them, if the
        // request has a target without an order.
        let enough = if limit > 0 && order == SortOrder::None && bounds.is_none() {
            limit.saturating_add(1)
        } else {
            usize::MAX
        };
        let (mut found, mut total) = (Vec::new(), 0);
        for kv in keys {
            total += 1;
            if found.len() < enough && bounds.as_ref().is_none_or(|bounds| bounds.contain(kv)) {
                found.push(kv);
            }
        }
        let target = SortTarget::try_from(request.sort_target).unwrap_or(SortTarget::Key);
        match order {
            SortOrder::None if target == SortTarget::Key => {}
            SortOrder::None | SortOrder::Ascend => found.sort_by(|a, b| by(target, a, b)),
            SortOrder::Descend => found.sort_by(|a, b| by(target, b, a)),
        }
        let more = limit > 0 && found.len() > limit;
        if more {
            found.truncate(limit);
        }
        PbRangeResponse {
            header: Some(header),
            kvs: found.into_iter().map(|kv| copy(kv, request.keys_only, target)).collect(),
            more,
            count: count(total),
        }
    }
}

/// Bounds of the revisions of the keys in a response.
struct Bounds {
    modified: (i64, i64),
    created: (i64, i64),
}

impl Bounds {
    fn of(request: &PbRangeRequest) -> Option<Self> {
        let lower = |bound| if bound == 0 { i64::MIN } else { bound };
        let upper = |bound| if bound == 0 { i64::MAX } else { bound };
        let any = [
            request.min_mod_revision,
            request.max_mod_revision,
            request.min_create_revision,
            request.max_create_revision,
        ]
        .iter()
        .any(|bound| *bound != 0);
        any.then(|| Self {
            modified: (lower(request.min_mod_revision), upper(request.max_mod_revision)),
            created: (lower(request.min_create_revision), upper(request.max_create_revision)),
        })
    }

    fn contain(&self, kv: &PbKeyValue) -> bool {
        (self.modified.0..=self.modified.1).contains(&kv.mod_revision)
            && (self.created.0..=self.created.1).contains(&kv.create_revision)
    }
}

fn by(target: SortTarget, a: &Arc<PbKeyValue>, b: &Arc<PbKeyValue>) -> Ordering {
    match target {
        SortTarget::Key => a.key.cmp(&b.key),
        SortTarget::Version => a.version.cmp(&b.version),
        SortTarget::Create => a.create_revision.cmp(&b.create_revision),
        SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
        SortTarget::Value => a.value.cmp(&b.value),
    }
}

/// Copies a key for a response. etcd reads keys alone from its index, which has no leases (etcd#22209), unless it sorts them by
/// value.
fn copy(kv: &PbKeyValue, keys_only: bool, target: SortTarget) -> PbKeyValue {
    if !keys_only {
        return kv.clone();
    }
    PbKeyValue {
        key: kv.key.clone(),
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        version: kv.version,
        value: Vec::new(),
        lease: match target {
            SortTarget::Value => kv.lease,
            _ => 0,
        },
    }
}

fn count(keys: usize) -> i64 {
    i64::try_from(keys).unwrap_or(i64::MAX)
}
