//! What is under way at etcd, and whom its answers are for.

use std::sync::Arc;

use crate::clock::Moment;
use crate::core::abort::Abort;
use crate::core::bundle::{Deletion, Look};
use crate::core::call::Bid;
use crate::core::lease::LeaseRef;
use crate::core::record::Waits;
use crate::core::request::{Failure, Key, Request, Response, Revision, TxnAnswer};
use crate::core::{CallId, Core, Output, RequestId};

/// What is under way at etcd.
#[derive(Debug)]
pub(crate) enum Exchange {
    Grant(LeaseRef),
    Renewal(LeaseRef),
    Revoke,
    Seal(LeaseRef),
    Put {
        lease: LeaseRef,
        bids: Vec<Bid>,
    },
    Try {
        lease: LeaseRef,
        bid: Bid,
        call: CallId,
    },
    Delete(Vec<Deletion>),
    Look(Vec<Look>),
    /// A lease for keys that stay after their call; then the keys under it (rule P39).
    Reserve(CallId),
    Retain(CallId),
    Repair {
        name: Key,
        created: Revision,
    },
    /// Why is the lease gone?
    Autopsy(LeaseRef),
    /// What the task of a holder depends on, written on the holder's keys.
    Publish {
        holder: CallId,
        waits: Waits,
    },
    Search(CallId),
    Abort(Box<Abort>),
}

#[derive(Debug)]
pub(crate) struct UnderWay {
    pub(crate) exchange: Exchange,
    sent: Moment,
    /// The highest revision known when it was sent: a lower answer is stale, or etcd was wiped (rules P20, P35).
    floor: Revision,
}

impl Core {
    pub(super) fn send(&mut self, now: Moment, request: Request, exchange: Exchange) -> RequestId {
        let id = self.new_id();
        self.under_way.insert(
            id,
            UnderWay {
                exchange,
                sent: now,
                floor: self.highest,
            },
        );
        self.outputs.push_back(Output::Send { id, request });
        id
    }

    pub(super) fn answer(
        &mut self,
        now: Moment,
        request: RequestId,
        result: Result<Response, Failure>,
    ) {
        let Some(UnderWay {
            exchange,
            sent,
            floor,
        }) = self.under_way.remove(&request)
        else {
            return;
        };
        if let Ok(Response::Txn(answer)) = &result
            && request > self.old
        {
            self.highest = self.highest.max(answer.revision);
        }
        // What was sent before a wipe was found out does not find it out again.
        let sealed_above = if request > self.old { floor } else { 0 };
        match exchange {
            Exchange::Grant(lease) => self.granted(now, lease, sent, result),
            Exchange::Renewal(lease) => self.renewed(now, lease, sent, result),
            Exchange::Revoke => {}
            Exchange::Seal(lease) => self.sealed(now, lease, sealed_above, transaction(result)),
            Exchange::Put { lease, bids } => {
                self.put(now, sent, lease, bids, transaction(result));
            }
            Exchange::Try { lease, bid, call } => {
                self.tried(now, sent, lease, bid, call, transaction(result));
            }
            Exchange::Delete(deletions) => self.deleted(now, deletions, transaction(result)),
            Exchange::Look(looks) => self.looked(now, looks, sent, floor, transaction(result)),
            Exchange::Reserve(call) => self.reserved(now, call, result),
            Exchange::Retain(call) => self.retained(now, call, transaction(result)),
            Exchange::Repair { name, created } => {
                self.repaired(now, &name, created, transaction(result));
            }
            Exchange::Autopsy(lease) => self.autopsied(now, lease, floor, transaction(result)),
            Exchange::Publish { holder, waits } => {
                self.published(now, holder, waits, transaction(result));
            }
            Exchange::Search(call) => self.searched(now, call, transaction(result)),
            Exchange::Abort(abort) => self.aborted(now, *abort, transaction(result)),
        }
    }
}

/// The transaction in an answer.
fn transaction(result: Result<Response, Failure>) -> Result<TxnAnswer, Failure> {
    match result {
        Ok(Response::Txn(answer)) => Ok(answer),
        Ok(other) => Err(Failure::Unknown(Arc::from(Box::from(format!(
            "not a transaction's answer: {other:?}"
        ))))),
        Err(failure) => Err(failure),
    }
}
