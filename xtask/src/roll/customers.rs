//! Customers of the shop: some want what all others want, some what no other does; each tries again where it is refused.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use super::balancer::Balancer;
use super::figures::Hold;
use crate::http::{Answer, Request};

/// Articles that several customers want all the time.
pub(super) const HOT: usize = 8;

/// Customers of each of them: enough that one waits at another replica than the holder's.
const CROWD: usize = 4;

/// Customers who each want an article of their own.
const COLD: usize = 4;

/// The pause before a refused customer asks again.
const PAUSE: Duration = Duration::from_millis(20);

/// The limit of a request: longer than any wait for a lock.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the customers saw.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// How many answers had each status.
    pub(super) answers: BTreeMap<u16, usize>,
    /// The first answers that a client must not see.
    pub(super) odd: Vec<String>,
    /// Connection errors of replicas that had said that they are not ready.
    pub(super) refused: usize,
    /// Other connection errors.
    pub(super) broken: Vec<String>,
    /// Bodies that held hot articles.
    pub(super) holds: Vec<Hold>,
}

/// All customers, and what they share.
#[derive(Debug)]
pub(super) struct Customers<'a> {
    balancer: &'a Balancer,
    ends: &'a AtomicBool,
    orders: AtomicU64,
    seen: Mutex<Seen>,
}

impl<'a> Customers<'a> {
    pub(super) fn new(balancer: &'a Balancer, ends: &'a AtomicBool) -> Self {
        Self { balancer, ends, orders: AtomicU64::new(1), seen: Mutex::default() }
    }

    /// The articles that they want: the hot ones, then the cold.
    pub(super) fn articles() -> impl Iterator<Item = String> {
        let hot = (0..HOT).map(|at| format!("hot-{at}"));
        hot.chain((0..COLD).map(|at| format!("cold-{at}")))
    }

    /// Sends all of them, in threads of this scope, until `ends`.
    pub(super) fn send<'s>(&'s self, scope: &'s thread::Scope<'s, '_>) {
        for (at, article) in Self::articles().enumerate() {
            let customers = if at < HOT { CROWD } else { 1 };
            for _ in 0..customers {
                let article = article.clone();
                scope.spawn(move || match at < HOT {
                    true => self.wants_what_others_want(at, &article),
                    false => self.wants_two_invoices(&article),
                });
            }
        }
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wants_what_others_want(&self, at: usize, article: &str) {
        while let Some((asked, replica, answer)) = self.order(article).1 {
            if answer.status != 200 {
                continue; // it has waited for too long
            }
            let placed: Value = serde_json::from_str(&answer.body).unwrap_or_default();
            let time = |field: &str| placed[field].as_u64();
            let mut seen = self.seen();
            match (time("begun_us"), time("ended_us")) {
                (Some(begun), Some(ended)) => {
                    seen.holds.push(Hold { article: at, replica, asked, begun, ended })
                }
                _ => seen.odd.push(format!("an order without times: {}", answer.body)),
            }
        }
    }

    /// Asks for the invoice of each of its orders twice at the same time: one of the two may be refused.
    fn wants_two_invoices(&self, article: &str) {
        while let (id, Some(_)) = self.order(article) {
            let invoice = || self.ask("POST", &format!("/orders/{id}/invoice"), "");
            thread::scope(|scope| {
                scope.spawn(invoice);
                invoice();
            });
        }
    }

    /// Places an order; returns its number, and the answer if there was time for one.
    fn order(&self, article: &str) -> (u64, Option<(u64, SocketAddr, Answer)>) {
        let id = self.orders.fetch_add(1, Ordering::Relaxed);
        let body = format!(r#"{{"sku": "{article}", "pieces": 1}}"#);
        (id, self.ask("PUT", &format!("/orders/{id}"), &body))
    }

    /// Sends a request until a replica answers with another status than 503. Returns when it was asked, and the answer; `None`
    /// at the end.
    ///
    /// An order may be sent twice: the shop knows it by its number.
    fn ask(&self, method: &str, path: &str, body: &str) -> Option<(u64, SocketAddr, Answer)> {
        while !self.ends.load(Ordering::Relaxed) {
            let Some(replica) = self.balancer.pick() else {
                thread::sleep(PAUSE);
                continue;
            };
            let asked = now_us();
            let answer = Request::new(method, replica, path).body(body).limit(PATIENCE).send();
            let mut seen = self.seen();
            match answer {
                Err(_) if self.balancer.was_unready(replica) => seen.refused += 1,
                Err(error) => seen.broken.push(error),
                Ok(answer) => {
                    *seen.answers.entry(answer.status).or_default() += 1;
                    match answer.status {
                        503 => {}
                        200 | 423 => return Some((asked, replica, answer)),
                        status => {
                            let odd = format!("{method} {path}: {status} {}", answer.body);
                            seen.odd.push(odd);
                        }
                    }
                }
            }
            drop(seen);
            thread::sleep(PAUSE);
        }
        None
    }
}

/// Returns the time by the clock that the shop's answers have, in microseconds.
pub(super) fn now_us() -> u64 {
    let now = UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}
