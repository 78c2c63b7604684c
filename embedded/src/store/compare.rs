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
            // For a missing key all numbers are 0. It does not have a value: an empty value would be one.
            return compare.target != PbCompareTarget::Value as i32
                && fits(compare, &PbKeyValue::default());
        }
        keys.all(|kv| fits(compare, kv))
    }
}

fn fits(compare: &PbCompare, kv: &PbKeyValue) -> bool {
    let target = PbCompareTarget::try_from(compare.target);
    // A target union that does not match the target counts as zero.
    let wanted = match (target, &compare.target_union) {
        (Ok(PbCompareTarget::Create), Some(PbTargetUnion::CreateRevision(it)))
        | (Ok(PbCompareTarget::Mod), Some(PbTargetUnion::ModRevision(it)))
        | (Ok(PbCompareTarget::Version), Some(PbTargetUnion::Version(it)))
        | (Ok(PbCompareTarget::Lease), Some(PbTargetUnion::Lease(it))) => *it,
        _ => 0,
    };
    let ordering = match target {
        Ok(PbCompareTarget::Value) => kv.value.as_slice().cmp(match &compare.target_union {
            Some(PbTargetUnion::Value(value)) => value,
            _ => &[],
        }),
        Ok(PbCompareTarget::Create) => kv.create_revision.cmp(&wanted),
        Ok(PbCompareTarget::Mod) => kv.mod_revision.cmp(&wanted),
        Ok(PbCompareTarget::Version) => kv.version.cmp(&wanted),
        Ok(PbCompareTarget::Lease) => kv.lease.cmp(&wanted),
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
