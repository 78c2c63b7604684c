//! Transactions, flat and nested.

use etcd_client::proto::{
    PbRangeRequest, PbResponseHeader, PbResponseOp, PbTxnOpRequest, PbTxnOpResponse, PbTxnRequest,
    PbTxnRequestOp, PbTxnResponse,
};

use super::write::Write;
use super::{Refusal, Store, check, inner_header};

impl Store {
    /// Decides the conditions, then carries out one branch: all of it, as one revision, or nothing.
    ///
    /// # Errors
    ///
    /// Whatever is wrong with one of its operations (those of the branch not taken are only looked at as far as the store
    /// need not be asked), too many operations, a key put twice or put and deleted.
    pub fn txn(&mut self, request: &PbTxnRequest) -> Result<PbTxnResponse, Refusal> {
        let size = check::sent(request)?;
        check::txn(request)?;
        if !reads_only(request) {
            check::proposed(size)?;
        }
        let mut path = Vec::new();
        self.decide(request, &mut path);
        // First all puts, then all ranges, as etcd names what is wrong.
        self.check_branch(request, &mut path.iter(), &|store, op| match op {
            PbTxnOpRequest::RequestPut(put) => {
                store.has_what_it_keeps(put)?;
                store.lease_exists(put.lease)
            }
            _ => Ok(()),
        })?;
        self.check_branch(request, &mut path.iter(), &|store, op| match op {
            PbTxnOpRequest::RequestRange(range) => store.within_limits(range),
            _ => Ok(()),
        })?;
        let mut response = self.write(|write| carry_out(write, request, &mut path.iter()));
        response.header = Some(self.header());
        Ok(response)
    }

    /// Which branch each transaction takes, nested ones in their order behind the outer one. All conditions are decided on
    /// the state before.
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
        check: &dyn Fn(&Self, &PbTxnOpRequest) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let succeeded = path.next().is_some_and(|succeeded| *succeeded);
        for op in branch(request, succeeded) {
            match &op.request {
                Some(PbTxnOpRequest::RequestTxn(nested)) => {
                    self.check_branch(nested, path, check)?;
                }
                Some(op) => check(self, op)?,
                None => {}
            }
        }
        Ok(())
    }

    /// In a transaction, a negative revision is one of the past, before all that is remembered.
    fn within_limits(&self, range: &PbRangeRequest) -> Result<(), Refusal> {
        if range.revision > self.revision {
            return Err(Refusal::future_revision());
        }
        if range.revision != 0 && range.revision < self.compacted {
            return Err(Refusal::compacted());
        }
        Ok(())
    }
}

fn branch(request: &PbTxnRequest, succeeded: bool) -> &[PbTxnRequestOp] {
    if succeeded {
        &request.success
    } else {
        &request.failure
    }
}

/// As etcd sees it: a nested transaction counts as a write.
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
        header: Some(PbResponseHeader::default()), // of a nested one, etcd fills in nothing
        succeeded,
        responses,
    }
}
