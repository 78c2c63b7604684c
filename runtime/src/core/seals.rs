//! How a lease is sealed: what had no answer is settled, and can no longer happen (rule P10).

use crate::clock::Moment;
use crate::core::bundle;
use crate::core::call::Bid;
use crate::core::lease::{LeaseRef, Seal, State};
use crate::core::place;
use crate::core::request::{Failure, Refusal, Request, Revision, TxnAnswer};
use crate::core::{Core, Exchange, Output, Refused, Timer};
use crate::error::LossCause;

/// Failures in a row after which the pause grows no longer.
const SLOWLY: u32 = 4;

impl Core {
    /// Seals the lease (rule P10), at first to create its session key. One seal at a time.
    pub(super) fn seal(&mut self, now: Moment, lease: LeaseRef) {
        let Some(l) = self.leases.get_mut(&lease) else {
            return;
        };
        match l.state {
            _ if l.seal.is_some() => return,
            State::Open | State::Sealing => l.state = State::Sealing,
            // What its bodies keep it alive with must not keep a key alive that nobody knows of: they may be waiting for it.
            State::Retired if !l.doubt.is_empty() => {}
            _ => return,
        }
        let rest = l.doubt.split_off(l.doubt.len().min(bundle::DOUBTS));
        let names = std::mem::replace(&mut l.doubt, rest);
        l.seal = Some(Seal {
            names,
            since: now,
            sent: None,
        });
        self.send_seal(now, lease);
    }

    /// Sends the seal under way, unchanged however often.
    pub(super) fn send_seal(&mut self, now: Moment, lease: LeaseRef) {
        let Some(l) = self.leases.get(&lease) else {
            return;
        };
        let Some(seal) = &l.seal else { return };
        if seal.sent.is_some() {
            return;
        }
        let keys = seal.names.iter().map(|name| place::own_key(name, l.id));
        let request = Request::Txn(bundle::seal(l, keys));
        let id = self.send(now, request, Exchange::Seal(lease));
        if let Some(seal) = self.leases.get_mut(&lease).and_then(|l| l.seal.as_mut()) {
            seal.sent = Some(id);
        }
    }

    pub(super) fn sealed(
        &mut self,
        now: Moment,
        lease: LeaseRef,
        floor: Revision,
        result: Result<TxnAnswer, Failure>,
    ) {
        let Some(l) = self.leases.get_mut(&lease) else {
            return;
        };
        let Some(seal) = &mut l.seal else { return };
        seal.sent = None;
        let since = seal.since;
        if l.state == State::Retired {
            return self.sealed_late(now, lease, result);
        }
        let answer = match result {
            Ok(answer) => answer,
            Err(Failure::Refused {
                kind: Refusal::LeaseNotFound,
                ..
            }) => return self.lose(now, lease, LossCause::Revoked),
            Err(failure @ Failure::Refused { .. }) if l.session_revision == 0 => {
                let why = match Refused::by(failure) {
                    Refused::PermissionDenied(cause) => Refused::SessionDenied(cause),
                    why => why,
                };
                return self.give_up(now, lease, &why);
            }
            Err(Failure::Refused { .. }) => return self.retire(now, lease),
            Err(Failure::Unavailable(_) | Failure::Unknown(_))
                if now - since >= l.ttl && l.session_revision != 0 =>
            {
                return self.retire(now, lease);
            }
            Err(Failure::Unavailable(cause) | Failure::Unknown(cause)) => {
                let again = self.hold_off(now, lease, since, cause);
                return self.at(again, Timer::Seal(lease));
            }
        };
        let revision = answer.revision;
        // A write is not stale, but its answer may be late: what counts is what was known when it was sent (rule P35).
        // And a write has a revision of its own.
        let restarted = revision < floor + Revision::from(answer.succeeded);
        if restarted {
            self.highest = revision;
            self.old = self.last_id;
        }
        let first = l.session_revision == 0;
        let mut answers = answer.answers.into_iter();
        let session = answers.next().and_then(bundle::first);
        if answer.succeeded {
            l.session_revision = revision;
        } else {
            match session.filter(|kv| kv.lease == l.id) {
                Some(kv) => l.session_revision = kv.mod_revision,
                None if restarted => return self.wiped(now, None),
                None => {
                    // What it found would stay as long as the lease has bodies, in everybody's way.
                    let names = l.seal.take().map(|seal| seal.names).unwrap_or_default();
                    for (name, kv) in names.into_iter().zip(answers.map(bundle::first)) {
                        if let Some(kv) = kv {
                            self.orphan(lease, &name, kv.create_revision);
                        }
                    }
                    return self.retire(now, lease);
                }
            }
        }
        if restarted && first {
            self.wiped(now, Some(lease));
        }
        let Some(l) = self.leases.get_mut(&lease) else {
            return;
        };
        l.state = State::Open;
        let names = l.seal.take().map(|seal| seal.names).unwrap_or_default();
        let more = !l.doubt.is_empty();
        let warming = std::mem::take(&mut l.warming);
        self.reached(lease);
        for (call, _) in warming {
            self.outputs.push_back(Output::Ready { call });
        }
        for (name, kv) in names.into_iter().zip(answers.map(bundle::first)) {
            self.settle(now, lease, &name, revision, kv);
        }
        if more {
            self.seal(now, lease);
        }
    }

    /// A put of a retired lease has no answer: its names go on without it, but its bodies keep the lease alive, and so the keys.
    pub(super) fn doubt_for_others(&mut self, lease: LeaseRef, bids: &[Bid]) {
        if let Some(l) = self.leases.get_mut(&lease)
            && l.state == State::Retired
        {
            l.doubt
                .extend(bids.iter().flat_map(|bid| bid.names.iter().cloned()));
        }
    }

    /// A seal of a lease that takes no acquisitions any more: what it finds is in everybody's way.
    fn sealed_late(&mut self, now: Moment, lease: LeaseRef, result: Result<TxnAnswer, Failure>) {
        let answer = match result {
            Ok(answer) => answer,
            Err(Failure::Unavailable(_) | Failure::Unknown(_)) => {
                let again = now + self.pause(SLOWLY);
                return self.at(again, Timer::Seal(lease));
            }
            Err(Failure::Refused { kind, .. }) => {
                if kind == Refusal::LeaseNotFound {
                    self.lose(now, lease, LossCause::Revoked);
                }
                return; // then it stays as it is, and is sent no more
            }
        };
        let Some(l) = self.leases.get_mut(&lease) else {
            return;
        };
        let mut answers = answer.answers.into_iter();
        let session = answers.next().and_then(bundle::first);
        let moved = session.map_or(l.session_revision, |kv| kv.mod_revision);
        l.session_revision = match answer.succeeded {
            true => answer.revision,
            false => moved,
        };
        let names = l.seal.take().map(|seal| seal.names).unwrap_or_default();
        for (name, kv) in names.into_iter().zip(answers.map(bundle::first)) {
            if let Some(kv) = kv {
                self.orphan(lease, &name, kv.create_revision);
            }
        }
        self.seal(now, lease);
    }
}
