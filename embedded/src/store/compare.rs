//! Conditions of a transaction, compared with the keys they name.

use std::cmp::Ordering;

use etcd_client::CompareOp;
use etcd_client::proto::{PbCompare, PbCompareTarget, PbKeyValue, PbTargetUnion};

use super::Store;
use super::span::Span;

impl Store {
    pub(super) fn holds(&self, compares: &[PbCompare]) -> bool {
        compares.iter().all(|compare| self.holds_one(compare))
    }

    fn holds_one(&self, compare: &PbCompare) -> bool {
        let span = Span::new(&compare.key, &compare.range_end);
        let mut keys = self.keys.range(span, self.revision).peekable();
        if keys.peek().is_none() {
            // A missing key has all numbers at 0. It has no value, as an empty value would be one.
            return compare.target != PbCompareTarget::Value as i32
                && fits(compare, &PbKeyValue::default());
        }
        keys.all(|kv| fits(compare, kv))
    }
}

fn fits(compare: &PbCompare, kv: &PbKeyValue) -> bool {
    let union = compare.target_union.as_ref();
    // A target union of another kind than the target counts as zero.
    let against = |number: i64, wanted: Option<i64>| number.cmp(&wanted.unwrap_or_default());
    let ordering = match PbCompareTarget::try_from(compare.target) {
        Ok(PbCompareTarget::Value) => kv.value.as_slice().cmp(match union {
            Some(PbTargetUnion::Value(value)) => value,
            _ => &[],
        }),
        Ok(PbCompareTarget::Create) => against(
            kv.create_revision,
            match union {
                Some(PbTargetUnion::CreateRevision(revision)) => Some(*revision),
                _ => None,
            },
        ),
        Ok(PbCompareTarget::Mod) => against(
            kv.mod_revision,
            match union {
                Some(PbTargetUnion::ModRevision(revision)) => Some(*revision),
                _ => None,
            },
        ),
        Ok(PbCompareTarget::Version) => against(
            kv.version,
            match union {
                Some(PbTargetUnion::Version(version)) => Some(*version),
                _ => None,
            },
        ),
        Ok(PbCompareTarget::Lease) => against(
            kv.lease,
            match union {
                Some(PbTargetUnion::Lease(lease)) => Some(*lease),
                _ => None,
            },
        ),
        Err(_) => Ordering::Equal,
    };
    match CompareOp::try_from(compare.result) {
        Ok(CompareOp::Equal) => ordering.is_eq(),
        Ok(CompareOp::Greater) => ordering.is_gt(),
        Ok(CompareOp::Less) => ordering.is_lt(),
        Ok(CompareOp::NotEqual) => ordering.is_ne(),
        Err(_) => true,
    }
}
