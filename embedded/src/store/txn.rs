//! Transactions, flat and nested: conditions, then one branch as one revision.

use etcd_client::proto::{
    PbRangeRequest, PbResponseHeader, PbResponseOp, PbTxnOpRequest, PbTxnOpResponse, PbTxnRequest,
    PbTxnRequestOp, PbTxnResponse,
};

use super::write::Write;
use super::{Refusal, Store, check, inner_header};

impl Store {
    /// Decides the conditions, then applies one branch: all of it, as one revision, or nothing.
    ///
    /// # Errors
    ///
    /// One of its operations is refused, there are too many of them, or a key is put twice or put and deleted. In the branch
    /// that is not taken, only what does not depend on the store is checked.
    pub fn txn(&mut self, request: &PbTxnRequest) -> Result<PbTxnResponse, Refusal> {
        let size = check::sent(request)?;
        check::txn(request)?;
        if !reads_only(request) {
            check::proposed(size)?;
        }
        let mut path = Vec::new();
        self.decide(request, &mut path);
        self.check_branch(request, &mut path.iter())?;
        let mut response = self.write(|write| carry_out(write, request, &mut path.iter()));
        response.header = Some(self.header());
        Ok(response)
    }

    /// Decides which branch each transaction takes, the nested ones in order after the outer one. All conditions are decided
    /// on the state before the transaction.
    fn decide(&self, request: &PbTxnRequest, path: &mut Vec<bool>) {
        let succeeded = self.holds(&request.compare);
        path.push(succeeded);
        for op in branch(request, succeeded) {
            if let Some(PbTxnOpRequest::RequestTxn(nested)) = &op.request {
                self.decide(nested, path);
            }
        }
    }

    fn check_branch(
        &self,
        request: &PbTxnRequest,
        path: &mut std::slice::Iter<'_, bool>,
    ) -> Result<(), Refusal> {
        let succeeded = path.next().is_some_and(|succeeded| *succeeded);
        for op in branch(request, succeeded) {
            match &op.request {
                Some(PbTxnOpRequest::RequestTxn(nested)) => self.check_branch(nested, path)?,
                Some(PbTxnOpRequest::RequestPut(put)) => {
                    self.lease_exists(put.lease)?;
                    self.kept_key_exists(put)?;
                }
                Some(PbTxnOpRequest::RequestRange(range)) => self.within_limits(range)?,
                Some(PbTxnOpRequest::RequestDeleteRange(_)) | None => {}
            }
        }
        Ok(())
    }

    /// Refuses a revision that is compacted or not reached yet. In a transaction, a negative revision counts as compacted.
    fn within_limits(&self, range: &PbRangeRequest) -> Result<(), Refusal> {
        if range.revision > self.revision {
            return Err(Refusal::FUTURE_REVISION.into());
        }
        if range.revision != 0 && range.revision < self.compacted {
            return Err(Refusal::COMPACTED.into());
        }
        Ok(())
    }
}

fn branch(request: &PbTxnRequest, succeeded: bool) -> &[PbTxnRequestOp] {
    if succeeded { &request.success } else { &request.failure }
}

/// Returns true for a transaction that only reads. As in etcd, a nested transaction counts as a write.
fn reads_only(request: &PbTxnRequest) -> bool {
    request
        .success
        .iter()
        .chain(&request.failure)
        .all(|op| matches!(op.request, Some(PbTxnOpRequest::RequestRange(_))))
}

fn carry_out(
    write: &mut Write<'_>,
    request: &PbTxnRequest,
    path: &mut std::slice::Iter<'_, bool>,
) -> PbTxnResponse {
    let succeeded = path.next().is_some_and(|succeeded| *succeeded);
    let responses = branch(request, succeeded)
        .iter()
        .map(|op| PbResponseOp {
            response: op.request.as_ref().map(|op| match op {
                PbTxnOpRequest::RequestRange(range) => {
                    let revision = write.revision();
                    PbTxnOpResponse::ResponseRange(write.store.read(
                        range,
                        revision,
                        inner_header(revision),
                    ))
                }
                PbTxnOpRequest::RequestPut(put) => {
                    PbTxnOpResponse::ResponsePut(write.put(put, inner_header))
                }
                PbTxnOpRequest::RequestDeleteRange(delete) => {
                    PbTxnOpResponse::ResponseDeleteRange(write.delete_range(delete, inner_header))
                }
                PbTxnOpRequest::RequestTxn(nested) => {
                    PbTxnOpResponse::ResponseTxn(carry_out(write, nested, path))
                }
            }),
        })
        .collect();
    PbTxnResponse {
        header: Some(PbResponseHeader::default()), // etcd leaves the header of a nested one empty
        succeeded,
        responses,
    }
}
