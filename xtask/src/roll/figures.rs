//! Figures of the show: what clients saw, how long hand-overs took after SIGTERM, how replicas ended; and the verdict.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::customers::Seen;
use crate::Result;

/// The hand-over that is promised, on a machine with nothing else to do.
const TARGET: Duration = Duration::from_millis(50);

/// The hand-over beyond which even a busy machine is no excuse.
const BEYOND: Duration = Duration::from_secs(1);

/// The time after SIGTERM, in microseconds, in which a hand-over is not one as at all other times.
const STIR: u64 = 1_000_000;

/// The grace that the shop gives its bodies (`GRACE` in `examples/services/signals.rs`).
pub(super) const GRACE: Duration = Duration::from_secs(20);

/// What the figures are, for the reader of the table.
const MEASURED: &str = "
The clients' balancer asks each replica for /ready five times a second, and sends requests to those that are ready. A refused client
asks another replica. A hand-over after SIGTERM: the last body of a replica that gets SIGTERM while it holds, or is about to hold, a hot
lock runs to its end. From there to the begin of the next body, in another replica, whose request was there before.
";

/// A body that held the lock of a hot article. Times are microseconds, by one clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hold {
    pub(super) article: usize,
    pub(super) replica: SocketAddr,
    /// When its client sent the request.
    pub(super) asked: u64,
    pub(super) begun: u64,
    pub(super) ended: u64,
}

/// A replica that was ended.
#[derive(Debug)]
pub(super) struct Stop {
    pub(super) replica: SocketAddr,
    /// When SIGTERM was sent, in microseconds.
    pub(super) at: u64,
    /// How long it then took to exit.
    pub(super) took: Duration,
    /// The keys and leases that it has left in etcd.
    pub(super) left: Vec<String>,
}

/// All that was seen.
#[derive(Debug)]
pub(super) struct Figures {
    pub(super) seen: Seen,
    pub(super) stops: Vec<Stop>,
    /// What is in etcd after the last replica has exited.
    pub(super) left: Vec<String>,
}

/// Returns the hand-overs after SIGTERM, ascending.
///
/// For each stop and article: the last body of the stopped replica, if it ended after SIGTERM, and the next body, if its request
/// was already there. The time is from the end of the one to the begin of the other.
pub(super) fn hand_overs(holds: &[Hold], stops: &[Stop]) -> Vec<Duration> {
    let mut all = Vec::new();
    for bodies in of_each_article(holds) {
        for stop in stops {
            let Some(at) = bodies.iter().rposition(|it| it.replica == stop.replica) else {
                continue;
            };
            // A body that is running at SIGTERM ends as always: what counts is how long the lock then stays free.
            let from = bodies[at].ended;
            match bodies.get(at + 1) {
                Some(next) if from >= stop.at && next.asked < from => {
                    all.push(Duration::from_micros(next.begun.saturating_sub(from)));
                }
                _ => {}
            }
        }
    }
    all.sort_unstable();
    all
}

/// Returns the hand-overs from one replica to another at all other times, ascending.
fn other_hand_overs(holds: &[Hold], stops: &[Stop]) -> Vec<Duration> {
    let at_rest = |from: u64| {
        let mut stops = stops.iter();
        !stops.any(|stop| (stop.at..stop.at + STIR).contains(&from))
    };
    let articles = of_each_article(holds);
    let pairs = articles.iter().flat_map(|bodies| bodies.windows(2));
    let of_waiters = pairs.filter(|pair| {
        pair[0].replica != pair[1].replica
            && pair[1].asked < pair[0].ended
            && at_rest(pair[0].ended)
    });
    let mut all: Vec<_> = of_waiters
        .map(|pair| Duration::from_micros(pair[1].begun.saturating_sub(pair[0].ended)))
        .collect();
    all.sort_unstable();
    all
}

/// Counts bodies that began before the one before had ended.
fn overlaps(holds: &[Hold]) -> usize {
    let articles = of_each_article(holds);
    let pairs = articles.iter().flat_map(|bodies| bodies.windows(2));
    pairs.filter(|pair| pair[1].begun < pair[0].ended).count()
}

/// The bodies of each article, in order.
fn of_each_article(holds: &[Hold]) -> Vec<Vec<Hold>> {
    let mut articles: Vec<Vec<Hold>> = Vec::new();
    for hold in holds {
        if articles.len() <= hold.article {
            articles.resize_with(hold.article + 1, Vec::new);
        }
        articles[hold.article].push(*hold);
    }
    for bodies in &mut articles {
        bodies.sort_unstable_by_key(|it| it.begun);
    }
    articles
}

/// Returns the smallest time that at least `percent` of a hundred did not exceed.
fn percentile(ascending: &[Duration], percent: usize) -> Duration {
    let rank = (ascending.len() * percent).div_ceil(100);
    let at = rank.saturating_sub(1);
    ascending.get(at).copied().unwrap_or_default()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Figures {
    fn hand_overs(&self) -> Vec<Duration> {
        hand_overs(&self.seen.holds, &self.stops)
    }

    fn longest_exit(&self) -> Duration {
        let took = self.stops.iter().map(|stop| stop.took);
        took.max().unwrap_or_default()
    }

    fn left(&self) -> impl Iterator<Item = &String> {
        let left = self.stops.iter().flat_map(|stop| &stop.left);
        left.chain(&self.left)
    }

    fn answers(&self, status: u16) -> usize {
        self.seen.answers.get(&status).copied().unwrap_or(0)
    }

    /// Returns the first promise that was broken, if one was.
    pub(super) fn verdict(&self) -> Result<()> {
        let p99 = percentile(&self.hand_overs(), 99);
        let broken = if let Some(odd) = self.seen.odd.first() {
            format!("a client saw another answer than 200, 423 and 503: {odd}")
        } else if let Some(error) = self.seen.broken.first() {
            format!("a replica that had not said that it is not ready, refused a client: {error}")
        } else if let Some(left) = self.left().next() {
            format!("a replica has exited and left {left}")
        } else if self.longest_exit() > GRACE {
            format!("a replica took {:.1?} to exit", self.longest_exit())
        } else if overlaps(&self.seen.holds) > 0 {
            "two bodies held one lock".to_owned()
        } else if p99 > BEYOND {
            format!("p99 of the hand-over after SIGTERM is {p99:.1?}")
        } else if [200, 423, 503].iter().any(|it| self.answers(*it) == 0) {
            "one of 200, 423 and 503 was not seen, so this run shows too little".to_owned()
        } else {
            return Ok(());
        };
        Err(broken)
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |what: &str, text: String| writeln!(out, "{what:<24}{text}");
        let answers = self.seen.answers.iter();
        let answers: Vec<_> = answers.map(|(status, count)| format!("{status}: {count}")).collect();
        row("replicas ended", self.stops.len().to_string())?;
        row("answers", answers.join("   "))?;
        let (refused, broken) = (self.seen.refused, self.seen.broken.len());
        row(
            "connection errors",
            format!("{broken}, and {refused} of replicas that had said that they are not ready"),
        )?;
        let all = self.hand_overs();
        let [p50, p99, most] = [50, 99, 100].map(|it| percentile(&all, it));
        let verdict = if p99 <= TARGET { "kept" } else { "MISSED" };
        row(
            "hand-over after SIGTERM",
            format!(
                "{} measured: p50 {:.1} ms   p99 {:.1} ms (target {}: {verdict})   most {:.1} ms",
                all.len(),
                ms(p50),
                ms(p99),
                TARGET.as_millis(),
                ms(most),
            ),
        )?;
        let all = other_hand_overs(&self.seen.holds, &self.stops);
        let [p50, p99, most] = [50, 99, 100].map(|it| ms(percentile(&all, it)));
        row(
            "at all other times",
            format!(
                "{} measured: p50 {p50:.1} ms   p99 {p99:.1} ms   most {most:.1} ms",
                all.len()
            ),
        )?;
        row(
            "exit after SIGTERM",
            format!(
                "at most {:.1} s (grace {} s)",
                self.longest_exit().as_secs_f64(),
                GRACE.as_secs()
            ),
        )?;
        row(
            "bodies at once",
            format!("{} of {} on a hot lock", overlaps(&self.seen.holds), self.seen.holds.len()),
        )?;
        row("left by exited replicas", format!("{} keys and leases", self.left().count()))?;
        out.write_str(MEASURED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn hold(port: u16, asked: u64, begun: u64, ended: u64) -> Hold {
        Hold { article: 0, replica: replica(port), asked, begun, ended }
    }

    fn stop(port: u16, at: u64) -> Stop {
        Stop { replica: replica(port), at, took: Duration::ZERO, left: Vec::new() }
    }

    #[test]
    fn a_hand_over_begins_when_the_last_body_ends() {
        let holds = [hold(2, 40, 107, 150), hold(1, 0, 50, 100)];
        let from_body = hand_overs(&holds, &[stop(1, 80)]);
        assert_eq!(from_body, [Duration::from_micros(7)]);
        let idle = hand_overs(&holds, &[stop(1, 101)]);
        assert!(idle.is_empty(), "it held nothing at SIGTERM");
        let last = hand_overs(&holds, &[stop(2, 120)]);
        assert!(last.is_empty(), "no body came next");
    }

    #[test]
    fn a_request_that_came_later_waited_for_no_hand_over() {
        let holds = [hold(1, 0, 50, 100), hold(2, 103, 107, 150)];
        assert!(hand_overs(&holds, &[stop(1, 80)]).is_empty());
    }

    #[test]
    fn overlaps_are_counted_for_each_article() {
        let mut holds = [hold(1, 0, 50, 100), hold(2, 0, 99, 150)];
        assert_eq!(overlaps(&holds), 1);
        holds[1].article = 1;
        assert_eq!(overlaps(&holds), 0);
    }

    #[test]
    fn a_broken_promise_fails_the_show() {
        let figures = |change: &dyn Fn(&mut Figures)| {
            let mut figures = Figures {
                seen: Seen { answers: [(200, 9), (423, 1), (503, 1)].into(), ..Seen::default() },
                stops: vec![stop(1, 80)],
                left: Vec::new(),
            };
            change(&mut figures);
            figures.verdict().is_ok()
        };
        assert!(figures(&|_| ()));
        assert!(!figures(&|it| it.seen.odd.push("500".to_owned())));
        assert!(!figures(&|it| it.seen.broken.push("reset".to_owned())));
        assert!(!figures(&|it| it.stops[0].left.push("a key".to_owned())));
        assert!(!figures(&|it| it.left.push("a lease".to_owned())));
        assert!(!figures(&|it| it.stops[0].took = GRACE + TARGET));
        assert!(!figures(&|it| it.seen.answers.clear()));
        let late = 100 + 2_000_000;
        let slow = [hold(1, 0, 50, 100), hold(2, 0, late, late + 1)];
        assert!(!figures(&|it| it.seen.holds.extend(slow)));
        let both = [hold(1, 0, 50, 100), hold(2, 0, 60, 110)];
        assert!(!figures(&|it| it.seen.holds.extend(both)));
    }
}
