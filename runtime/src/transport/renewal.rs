//! Renewal of a lease: which endpoints are asked, one after the other, and what has come of them (rule P30).
//!
//! Without a clock: the client says when a part of the time is over without an answer.

use std::sync::Arc;
use std::vec::IntoIter;

use etcd_locked_core::{Cause, Failure};

use super::endpoint::Endpoint;
use super::errors::{all, unserved};
use super::renewals::Stream;
use super::ring::Ring;

/// How an endpoint is asked.
pub(super) enum Way {
    /// By the stream of the renewal before.
    Kept(Box<Stream>),
    /// By a stream that is opened.
    Opened(Arc<Endpoint>),
}

impl Way {
    pub(super) fn endpoint(&self) -> &Arc<Endpoint> {
        match self {
            Self::Kept(stream) => &stream.endpoint,
            Self::Opened(endpoint) => endpoint,
        }
    }
}

/// A connection over which an endpoint was asked: the endpoint, and the connection's generation.
type Asked = (Arc<Endpoint>, Option<u64>);

/// One renewal, from its first question to its first answer.
pub(super) struct Renewal {
    ring: Arc<Ring>,
    kept: Option<Stream>,
    /// What is left of a round of all endpoints; `None` before the first.
    round: Option<IntoIter<Arc<Endpoint>>>,
    newest: Option<Asked>,
    /// Those without an answer for a part of the time, in the order in which they were asked.
    silent: Vec<Asked>,
    /// One more round may begin, as one more part of the time is over.
    may_repeat: bool,
    /// The round is not the first: it goes to silent endpoints too.
    repeats: bool,
    causes: Vec<Cause>,
    /// An endpoint that failed may have renewed the lease all the same.
    may_be_applied: bool,
    refusal: Option<Failure>,
}

impl Renewal {
    /// By the stream of the renewal before first, unless its connection is lost: that may lead to another cluster.
    pub(super) fn new(ring: Arc<Ring>, kept: Option<Stream>) -> Self {
        Self {
            ring,
            kept: kept.filter(|stream| !stream.endpoint.is_lost(&stream.connection)),
            round: None,
            newest: None,
            silent: Vec::new(),
            may_repeat: false,
            repeats: false,
            causes: Vec::new(),
            may_be_applied: false,
            refusal: None,
        }
    }

    /// The next way to ask. None, once an endpoint has refused; or where all have failed or were asked: then one more may be
    /// asked after [`silence`](Self::silence).
    pub(super) fn next(&mut self) -> Option<Way> {
        let way = match self.kept.take() {
            _ if self.refusal.is_some() => None,
            Some(stream) => Some(Way::Kept(Box::new(stream))),
            None => self.next_endpoint().map(Way::Opened),
        };
        self.newest = way.as_ref().map(|way| {
            let generation = match way {
                Way::Kept(stream) => Some(stream.connection.generation()),
                Way::Opened(_) => None,
            };
            (way.endpoint().clone(), generation)
        });
        way
    }

    /// Endpoints that were not asked yet come first; then all again, over new connections where theirs are silent.
    fn next_endpoint(&mut self) -> Option<Arc<Endpoint>> {
        let begin = || self.ring.round().collect::<Vec<_>>().into_iter();
        let round = self.round.get_or_insert_with(begin);
        let is = |one: &Arc<Endpoint>, (other, _): &Asked| Arc::ptr_eq(one, other);
        let mut next = round.find(|it| self.repeats || !self.silent.iter().any(|of| is(it, of)));
        if next.is_none() && std::mem::take(&mut self.may_repeat) {
            self.repeats = true;
            *round = begin();
            next = round.next();
        }
        let next = next?;
        for (_, generation) in self.silent.iter().filter(|of| is(&next, of)) {
            // Not lost yet: it may still answer.
            generation.inspect(|generation| next.reopen(*generation));
        }
        Some(next)
    }

    /// A part of the time is over without an answer. Answers the endpoint that was asked last, if it was asked in that part.
    pub(super) fn silence(&mut self) -> Option<Arc<Endpoint>> {
        self.may_repeat = true;
        let (endpoint, generation) = self.newest.take()?;
        let generation = generation.or_else(|| endpoint.generation());
        self.silent.push((endpoint.clone(), generation));
        Some(endpoint)
    }

    /// One has answered. The silent connections that were asked before it are worse, and not used again.
    pub(super) fn answered(&self, stream: &Stream) {
        let its_own = Some(stream.connection.generation());
        let before = self.silent.iter().take_while(|(endpoint, generation)| {
            !Arc::ptr_eq(endpoint, &stream.endpoint) || *generation != its_own
        });
        for (endpoint, generation) in before {
            generation.inspect(|generation| endpoint.lose_up_to(*generation));
        }
    }

    /// One has failed, or refuses: then no more are asked.
    pub(super) fn failed(&mut self, failure: Failure) {
        match failure {
            Failure::Unavailable(cause) => self.causes.push(cause),
            Failure::Unknown(cause) => {
                self.may_be_applied = true;
                self.causes.push(cause);
            }
            refused @ Failure::Refused(..) => self.refusal = Some(refused),
        }
    }

    /// What it comes to without an answer.
    pub(super) fn outcome(self) -> Failure {
        match self.refusal {
            Some(refused) => refused,
            None if self.may_be_applied => Failure::Unknown(all(self.causes)),
            None => unserved(self.causes),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::endpoint::Means;
    use super::super::errors::named;
    use super::super::target::Target;
    use super::*;

    /// A renewal without a stream, at endpoints of these names.
    fn renewal(names: &[&str]) -> Renewal {
        let means = Means::for_tests(Duration::from_secs(1));
        let endpoint = |name: &&str| Endpoint::new(Target::Urls(vec![(*name).to_owned()]), &means);
        let endpoints = names.iter().map(|name| Arc::new(endpoint(name)));
        Renewal::new(Arc::new(Ring::new(endpoints.collect(), 0)), None)
    }

    /// Who is asked next.
    fn next(renewal: &mut Renewal) -> Option<String> {
        Some(renewal.next()?.endpoint().name().to_owned())
    }

    fn unavailable() -> Failure {
        Failure::Unavailable(named("a", "refused".to_owned()))
    }

    #[test]
    fn silent_endpoints_are_asked_again_after_the_others() {
        let mut renewal = renewal(&["a", "b"]);
        for expected in ["a", "b", "a", "b"] {
            assert_eq!(next(&mut renewal).as_deref(), Some(expected));
            assert!(renewal.silence().is_some());
        }
    }

    #[test]
    fn all_are_asked_once_if_all_fail() {
        let mut renewal = renewal(&["a", "b"]);
        for expected in ["a", "b"] {
            assert_eq!(next(&mut renewal).as_deref(), Some(expected));
            renewal.failed(unavailable());
        }
        assert_eq!(next(&mut renewal), None);
        assert!(matches!(renewal.outcome(), Failure::Unavailable(_)));
    }

    #[test]
    fn each_silence_lets_one_more_round_begin() {
        let mut renewal = renewal(&["a", "b"]);
        assert_eq!(next(&mut renewal).as_deref(), Some("a"));
        assert!(renewal.silence().is_some());
        for expected in ["b", "a", "b"] {
            assert_eq!(next(&mut renewal).as_deref(), Some(expected));
            renewal.failed(unavailable());
        }
        assert_eq!(next(&mut renewal), None);
        assert!(renewal.silence().is_none());
        assert_eq!(next(&mut renewal).as_deref(), Some("a"));
    }

    #[test]
    fn refusal_stands_and_nobody_else_is_asked() {
        let mut renewal = renewal(&["a", "b"]);
        assert!(next(&mut renewal).is_some());
        let cause = named("a", "permission denied".to_owned());
        let refusal = etcd_locked_core::Refusal::PermissionDenied;
        renewal.failed(Failure::Refused(refusal, cause));
        assert_eq!(next(&mut renewal), None);
        assert!(matches!(renewal.outcome(), Failure::Refused(..)));
    }
}
