//! View of one side's responses, as text that is the same on both sides.
//!
//! Revisions are counted from the start of the case, and leases have the names of the case. For the ids in a header it shows
//! only whether they are the server's own. Every field of a response is destructured here, so that none is left uncompared.

use std::fmt::Write as _;

use etcd_client::Error;
use etcd_client::proto::{
    PbDeleteResponse, PbEvent, PbKeyValue, PbLeaseGrantResponse, PbLeaseKeepAliveResponse,
    PbLeaseLeasesResponse, PbLeaseStatus, PbLeaseTimeToLiveResponse, PbPutResponse,
    PbRangeResponse, PbResponseHeader, PbTxnOpResponse, PbTxnResponse,
};

use crate::op::text;

/// Base of one side's numbers, by which they become equal on both sides.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// Revision at which the case began.
    pub(crate) base: i64,
    /// Newest revision, counted from there.
    pub(crate) now: i64,
    /// Ids that this side has chosen for leases, in order.
    pub(crate) chosen: Vec<i64>,
    pub(crate) cluster: u64,
    pub(crate) member: u64,
}

impl View {
    /// Shows a revision, counted from the start of the case.
    pub(crate) fn at(&self, revision: i64) -> String {
        match revision {
            1.. => format!("@{}", revision - self.base),
            nonsense => format!("@none({nonsense})"),
        }
    }

    fn id(&self, lease: i64) -> String {
        match self.chosen.iter().position(|it| *it == lease) {
            Some(nth) => format!("auto{nth}"),
            None => lease.to_string(),
        }
    }

    pub(crate) fn header(&self, header: Option<&PbResponseHeader>) -> String {
        let Some(PbResponseHeader { cluster_id, member_id, revision, raft_term }) = header else {
            return "no header".to_owned();
        };
        let whose = |id: u64, own: u64| match id {
            0 => "none",
            id if id == own => "own",
            _ => "STRANGE",
        };
        let term = if *raft_term > 0 { "a term" } else { "no term" };
        format!(
            "{} ({} cluster, {} member, {term})",
            self.at(*revision),
            whose(*cluster_id, self.cluster),
            whose(*member_id, self.member)
        )
    }

    pub(crate) fn kv(&self, kv: &PbKeyValue) -> String {
        let PbKeyValue { key, create_revision, mod_revision, version, value, lease } = kv;
        format!(
            "{}={} created {} modified {} version {version} lease {}",
            text(key),
            text(value),
            self.at(*create_revision),
            self.at(*mod_revision),
            self.id(*lease)
        )
    }

    fn kvs(&self, kvs: &[PbKeyValue]) -> String {
        kvs.iter().fold(String::new(), |mut out, kv| {
            let _ = write!(out, "\n      {}", self.kv(kv));
            out
        })
    }

    pub(crate) fn event(&self, event: &PbEvent) -> String {
        let PbEvent { r#type, kv, prev_kv } = event;
        let kind = match r#type {
            0 => "put",
            1 => "delete",
            _ => "STRANGE",
        };
        let kv = kv.as_ref().map_or("nothing".to_owned(), |kv| self.kv(kv));
        match prev_kv {
            Some(prev) => format!("{kind} {kv}, before: {}", self.kv(prev)),
            None => format!("{kind} {kv}"),
        }
    }

    pub(crate) fn ranged(&self, it: &PbRangeResponse) -> String {
        let PbRangeResponse { header, kvs, more, count } = it;
        format!(
            "{} count {count}{}{}",
            self.header(header.as_ref()),
            if *more { " and more" } else { "" },
            self.kvs(kvs)
        )
    }

    pub(crate) fn stored(&self, it: &PbPutResponse) -> String {
        let PbPutResponse { header, prev_kv } = it;
        let before =
            prev_kv.as_ref().map_or(String::new(), |kv| format!(" before: {}", self.kv(kv)));
        format!("{}{before}", self.header(header.as_ref()))
    }

    pub(crate) fn deleted(&self, it: &PbDeleteResponse) -> String {
        let PbDeleteResponse { header, deleted, prev_kvs } = it;
        format!("{} deleted {deleted}{}", self.header(header.as_ref()), self.kvs(prev_kvs))
    }

    pub(crate) fn decided(&self, it: &PbTxnResponse) -> String {
        let PbTxnResponse { header, succeeded, responses } = it;
        let word = if *succeeded { "then" } else { "else" };
        let mut out = format!("{} {word} {{", self.header(header.as_ref()));
        for response in responses {
            let shown = match &response.response {
                Some(PbTxnOpResponse::ResponseRange(it)) => self.ranged(it),
                Some(PbTxnOpResponse::ResponsePut(it)) => self.stored(it),
                Some(PbTxnOpResponse::ResponseDeleteRange(it)) => self.deleted(it),
                Some(PbTxnOpResponse::ResponseTxn(it)) => self.decided(it),
                None => "nothing".to_owned(),
            };
            let _ = write!(out, "\n    {};", shown.replace('\n', "\n    "));
        }
        out + " }"
    }

    /// Shows a granted lease, and remembers its id if etcd has chosen it.
    pub(crate) fn granted(&mut self, asked: i64, it: &PbLeaseGrantResponse) -> String {
        let PbLeaseGrantResponse { header, id, ttl, error } = it;
        if asked == 0 && *id > 0 {
            self.chosen.push(*id);
        }
        let header = self.header(header.as_ref());
        format!("{header} lease {} ttl {ttl} error {error:?}", self.id(*id))
    }

    pub(crate) fn remaining(&self, it: &PbLeaseTimeToLiveResponse) -> String {
        let PbLeaseTimeToLiveResponse { header, id, ttl, granted_ttl, keys } = it;
        // etcd keeps the keys in a hash table, and returns them in any order.
        let mut keys: Vec<_> = keys.iter().map(|key| text(key)).collect();
        keys.sort();
        format!(
            "{} lease {} ttl {ttl} of {granted_ttl} keys {keys:?}",
            self.header(header.as_ref()),
            self.id(*id)
        )
    }

    pub(crate) fn kept(&self, it: &PbLeaseKeepAliveResponse) -> String {
        let PbLeaseKeepAliveResponse { header, id, ttl } = it;
        let header = self.header(header.as_ref());
        format!("{header} lease {} ttl {ttl}", self.id(*id))
    }

    pub(crate) fn listed(&self, it: &PbLeaseLeasesResponse) -> String {
        let PbLeaseLeasesResponse { header, leases } = it;
        let ids: Vec<_> = leases.iter().map(|PbLeaseStatus { id }| self.id(*id)).collect();
        format!("{} leases {ids:?}", self.header(header.as_ref()))
    }
}

/// Shows a refusal: code and message.
pub(crate) fn refused(error: &Error) -> String {
    match error {
        Error::GRpcStatus(status) => format!("{:?}: {}", status.code(), status.message()),
        other => format!("client: {other}"),
    }
}
