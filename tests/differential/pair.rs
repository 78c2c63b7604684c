//! Pair of etcds that get the same operations, and whose responses must be equal.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use tokio::runtime::Runtime;

use crate::coverage::Coverage;
use crate::generate::sequence;
use crate::op::{Delete, End, Lease, Op, Put, Rev, Watch};
use crate::side::{Answer, STREAMS, Side};
use crate::versions::{Version, may_put_again};

/// Time limit of a conclusive case. In a longer one leases may expire, so it is played again.
const QUICK: Duration = Duration::from_millis(800);

pub(crate) struct Pair {
    left: Side,
    right: Side,
    version: Version,
    /// Operations of the case, with the response of both.
    transcript: Vec<String>,
    /// Last difference, with the transcript that led to it.
    failure: String,
    at: At,
    watches: Vec<Live>,
    pub(crate) coverage: Coverage,
}

/// Progress of a case, in revisions counted from its start.
#[derive(Debug, Default)]
pub(crate) struct At {
    /// Newest revision.
    now: i64,
    /// Revision of the last compaction.
    pub(crate) compacted: i64,
    /// Streams that do not respond to progress requests.
    pub(crate) stuck: [bool; STREAMS],
    /// Revisions at which a transaction may have deleted a key and put it again.
    pub(crate) reborn: BTreeSet<i64>,
}

impl At {
    /// Returns the revision as a number; `i64::MIN` for a plain one, which is not counted from the start.
    pub(crate) fn of(&self, revision: Rev) -> i64 {
        match revision {
            Rev::Plain(_) => i64::MIN,
            Rev::Now(it) => self.now + it,
            Rev::Start(it) => it,
        }
    }
}

/// Watch that both sides have.
#[derive(Clone, Debug)]
struct Live {
    id: i64,
    watch: Watch,
    /// First revision of the case that it receives.
    start: i64,
}

impl Pair {
    pub(crate) fn new(left: Side, right: Side, version: Version) -> Self {
        Self {
            left,
            right,
            version,
            transcript: Vec::new(),
            failure: String::new(),
            at: At::default(),
            watches: Vec::new(),
            coverage: Coverage::default(),
        }
    }

    /// Plays random cases. The error is the shortest case found in which the responses differ.
    pub(crate) fn agree(
        self,
        runtime: &Runtime,
        cases: u32,
        seed: u64,
    ) -> Result<Coverage, String> {
        let config = Config {
            cases,
            max_shrink_iters: 5_000,
            max_shrink_time: 120_000,
            failure_persistence: None,
            ..Config::default()
        };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let pair = RefCell::new(self);
        let outcome = TestRunner::new_with_rng(config, rng).run(&sequence(), |ops| {
            let mut pair = pair.borrow_mut();
            let played = runtime.block_on(pair.case(&ops));
            played.map_err(|difference| {
                // Now proptest searches for a shorter case with the same difference.
                pair.hurry();
                TestCaseError::fail(difference)
            })
        });
        match outcome {
            Ok(()) => Ok(pair.into_inner().coverage),
            Err(TestError::Fail(reason, ops)) => {
                let count = ops.len();
                Err(format!("SEED={seed}: {count} operations show a difference\n{reason}"))
            }
            Err(TestError::Abort(reason)) => Err(format!("SEED={seed}: {reason}")),
        }
    }

    fn hurry(&mut self) {
        self.left.patience = Duration::from_millis(500);
        self.right.patience = Duration::from_millis(500);
    }

    /// Plays one case.
    pub(crate) async fn case(&mut self, ops: &[Op]) -> Result<(), String> {
        let mut attempts = 0;
        loop {
            let began = Instant::now();
            let played = self.attempt(ops).await;
            let played = played.map_err(|difference| self.failed(difference));
            attempts += 1;
            if played.is_ok() || began.elapsed() < QUICK || attempts == 4 {
                return played;
            }
        }
    }

    async fn attempt(&mut self, ops: &[Op]) -> Result<(), String> {
        self.transcript.clear();
        self.watches.clear();
        self.at = At::default();
        let (left, right) = tokio::join!(self.left.begin(), self.right.begin());
        left.and(right).map_err(|error| format!("one cannot begin: {error}"))?;
        self.play(ops).await
    }

    /// Describes how the case led to this difference. If an etcd has ended, it describes the previous difference.
    fn failed(&mut self, difference: String) -> String {
        if !self.transcript.is_empty() || self.failure.is_empty() {
            self.failure = format!("{}\n{difference}", self.transcript.join("\n"));
        }
        self.failure.clone()
    }

    /// Plays operations on two fresh etcds, without preparing them. Revisions are compared as plain numbers.
    pub(crate) async fn play_as_they_are(&mut self, ops: &[Op]) -> Result<(), String> {
        let (left, right) = tokio::join!(self.left.take_as_it_is(), self.right.take_as_it_is());
        left.and(right).map_err(|error| format!("one cannot begin: {error}"))?;
        self.at.now = 1;
        let played = self.play(ops).await;
        played.map_err(|difference| self.failed(difference))
    }

    async fn play(&mut self, ops: &[Op]) -> Result<(), String> {
        for op in ops {
            // Events reach watches late, so operations that would change the events wait for them.
            if matches!(op, Op::Compact { .. } | Op::Cancel { .. } | Op::Progress { .. }) {
                self.settle().await?;
            }
            self.at.stuck = std::array::from_fn(|stream| self.left.is_stuck(stream));
            if self.version.leaves_out(op, &self.at) {
                continue;
            }
            self.step(op).await?;
        }
        self.settle().await?;
        self.step(&Op::Leases).await?;
        self.coverage.watched(&self.left.received(self.at.now));
        Ok(())
    }

    async fn step(&mut self, op: &Op) -> Result<(), String> {
        let (left, right) =
            tokio::join!(self.left.play(op, self.at.now), self.right.play(op, self.at.now));
        let mut line = format!("{:>3}. {op:?}", self.transcript.len() + 1);
        let (answer, other) = (&left.text, &right.text);
        if answer == other {
            let _ = write!(line, "\n    → {answer}");
        }
        self.transcript.push(line);
        self.same(answer, other)?;
        self.coverage.count(&left);
        self.at.now = self.at.now.max(left.revision.unwrap_or(0));
        if let (Op::Compact { at, .. }, None) = (op, &left.refusal) {
            self.at.compacted = self.at.of(*at);
        }
        if let (Op::Txn(txn), None) = (op, &left.refusal)
            && may_put_again(txn)
        {
            self.at.reborn.insert(self.at.now);
        }
        self.watched(op, &left);
        Ok(())
    }

    /// Remembers the watch that the operation has made.
    fn watched(&mut self, op: &Op, answer: &Answer) {
        let (Op::Watch(watch), Some(id)) = (op, answer.watch) else {
            return;
        };
        let stream = watch.stream;
        self.watches.retain(|it| it.id != id || it.watch.stream != stream);
        self.watches.push(Live { id, watch: watch.clone(), start: self.at.of(watch.start) });
    }

    /// Waits until all watches have received all events so far, and compares the events.
    ///
    /// For each watch it writes a key that the watch receives, because that event comes after all earlier ones.
    async fn settle(&mut self) -> Result<(), String> {
        // Later events come from the writes below, and only some watches have received them.
        let upto = self.at.now;
        let mut written = Vec::new();
        for live in self.watches.clone() {
            self.write_for(&live).await?;
            while self.at.now < live.start {
                self.write_for(&live).await?;
            }
            written.push((live.watch.stream, live.id, self.at.now));
        }
        for (stream, id, at) in written {
            let (left, right) =
                tokio::join!(self.left.reach(stream, id, at), self.right.reach(stream, id, at));
            left.map_err(|error| format!("{}: {error}", self.left.name))?;
            right.map_err(|error| format!("{}: {error}", self.right.name))?;
        }
        let (left, right) = (self.left.received(upto), self.right.received(upto));
        self.same(&left, &right)?;
        let side = &self.left;
        self.watches.retain(|it| side.is_live(it.watch.stream, it.id));
        Ok(())
    }

    /// Writes a key whose event this watch receives.
    async fn write_for(&mut self, live: &Live) -> Result<(), String> {
        let key = Side::key_of(&live.watch);
        self.step(&Op::Put(Put::new(key, b"settle", Lease::None))).await?;
        if live.watch.no_put {
            let delete = Delete { key, end: End::Key, prev_kv: false };
            self.step(&Op::Delete(delete)).await?;
        }
        Ok(())
    }

    fn same(&self, left: &str, right: &str) -> Result<(), String> {
        if left == right {
            return Ok(());
        }
        let names = (self.left.name, self.right.name);
        Err(format!("  {}: {left}\n  {}: {right}", names.0, names.1))
    }
}
