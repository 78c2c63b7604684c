//! Rows with a single worker on its etcd: memory, single tries, shutdowns, retention and users.

use std::time::Instant;

use etcd_locked_devkit::Cluster;
use serde_json::Value;

use super::crew::{Crew, Options, number_of};
use super::figures::{Spread, Target, bytes, number, rate, time};
use super::row::{Line, Outcome};
use super::server::{Server, setup};
use super::side::{Crowd, Side};
use super::{Pace, note};
use crate::Result;
use crate::kind::Kind;

/// Calls that wait at once in B8.
const WAITERS: u32 = 100_000;

/// Runs a worker's work `rounds` times; returns its results.
fn alone(kind: Kind, work: &str, options: &Options<'_>, rounds: usize) -> Result<Vec<Value>> {
    let server = Server::start()?;
    let mut crew = Crew::at_work(kind, 1, work, &server.endpoint(), options)?;
    let answers = (0..rounds).map(|_| crew.single()).collect::<Result<_>>()?;
    crew.end()?;
    Ok(answers)
}

/// Reads a field of each result.
fn column(answers: &[Value], field: &str) -> Result<Vec<f64>> {
    answers.iter().map(|answer| number_of(answer, field)).collect()
}

/// Measures B8: the memory that very many names leave behind, and that a waiter takes.
pub(crate) fn memory(pace: &Pace) -> Result<Outcome> {
    let distinct = pace.either(1_000_000, 20_000);
    let options: &Options<'_> = &[("tasks", &1_024), ("names", &distinct)];
    let answer = &alone(Kind::Ours, "distinct", options, 1)?[0];
    let names = number(distinct.into());
    let speed = rate(number_of(answer, "count")? / number_of(answer, "seconds")?);
    let mut outcome = Outcome::of([Line::medians(
        format!("resident memory after {names} names, each once, by 1,024 tasks at {speed}"),
        number_of(answer, "end")?,
        "before, after the same traffic on 2,000 names",
        number_of(answer, "start")?,
        bytes,
        Target::AtMost(1.1),
    )]);
    let tasks = waiter(Kind::Mutex, 1)?;
    for (names, shown) in [(1, "one name"), (1_000, "1,000 names")] {
        let each = waiter(Kind::Ours, names)?;
        outcome.lines.push(Line {
            ours: bytes(each) + " a waiter",
            figure: format!("{} more", bytes(each - tasks)),
            measured: each - tasks,
            ..Line::medians(
                format!(
                    "{} waiters at once, {shown} in all, a tokio task each",
                    number(WAITERS.into())
                ),
                each,
                "the same tasks waiting for a mutex of tokio's",
                tasks,
                bytes,
                Target::AtMost(1_024.0),
            )
        });
    }
    Ok(outcome)
}

/// Measures the memory of a waiter and its task.
fn waiter(kind: Kind, names: u32) -> Result<f64> {
    let options: &Options<'_> = &[("tasks", &WAITERS), ("names", &names)];
    let answer = &alone(kind, "waiters", options, 1)?[0];
    let waiters = number_of(answer, "waiters")?;
    if number_of(answer, "passed")? != waiters {
        return Err("not every waiter was admitted".to_owned());
    }
    Ok((number_of(answer, "waiting")? - number_of(answer, "before")?) / waiters)
}

/// Measures B15: thousands of single tries at once cost in proportion to their number.
pub(crate) fn tries(pace: &Pace) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let tries = pace.either(10_000, 4_000);
    for (mode, what) in [
        ("permits", "for 5 permits"),
        ("shared", "shared, behind a writer of another process"),
        ("exclusive", "exclusive, behind another process"),
    ] {
        let options: &Options<'_> = &[("tasks", &tries), ("mode", &mode)];
        let answers = alone(Kind::Ours, "tries", options, pace.pairs + 1)?;
        let answers = &answers[1..]; // the first round opens connections and makes threads
        let line = Line::pairs(
            format!("{} single tries at once, {what}", number(tries.into())),
            &column(answers, "whole")?,
            format!("{} of them", number((tries / 2).into())),
            &column(answers, "half")?,
            time,
            Target::AtMost(2.5),
        )?;
        note(format_args!("{}: {}", line.work, line.figure));
        outcome.lines.push(line);
    }
    Ok(outcome)
}

/// Measures B16: shutdown with very many held locks is linear in their number.
pub(crate) fn shutdowns(pace: &Pace) -> Result<Outcome> {
    /// Factor that noise may add to a linear cost.
    const NOISE: f64 = 1.25;
    let mut outcome = Outcome::default();
    let mut fewer: Option<(f64, Spread)> = None;
    for locks in pace.either(&[1_000, 10_000, 100_000][..], &[1_000, 10_000]) {
        let answers = alone(Kind::Ours, "shutdown", &[("names", locks)], pace.pairs)?;
        let locks = f64::from(*locks);
        if column(&answers, "ended")?.iter().any(|ended| *ended != locks) {
            return Err(format!("not every body has ended: {answers:?}"));
        }
        let spread = Spread::of(&column(&answers, "seconds")?)?;
        note(format_args!("{} locks: {}", number(locks), spread.shown(time)));
        outcome.lines.extend(fewer.map(|(few, of_few)| {
            let work = format!("shutdown with {} locks held", number(locks));
            let target = Target::AtMost(locks / few * NOISE);
            Line::medians(work, spread, format!("with {}", number(few)), of_few, time, target)
        }));
        fewer = Some((locks, spread));
    }
    Ok(outcome)
}

/// Measures B17: a call with `min_hold` costs the same at the end of very many names as near the beginning.
pub(crate) fn retention(pace: &Pace) -> Result<Outcome> {
    const TASKS: u32 = 16;
    let retained = pace.either(100_000, 10_000);
    let options: &Options<'_> = &[("tasks", &TASKS), ("names", &retained)];
    let answer = &alone(Kind::Ours, "retained", options, 1)?[0];
    let each = number_of(answer, "each")?;
    let speed = rate(f64::from(retained) / number_of(answer, "seconds")?);
    Ok(Outcome::of([Line::medians(
        format!(
            "processor time of a call with `min_hold`, the last tenth of {} names, by {TASKS} tasks at {speed}",
            number(retained.into())
        ),
        number_of(answer, "last")? / each,
        "the second tenth",
        number_of(answer, "second")? / each,
        time,
        Target::AtMost(1.1),
    )]))
}

/// Measures B22: processor time of the process for a lock and its release.
pub(crate) fn processor(pace: &Pace) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for tasks in [1, 64] {
        let server = Server::start()?;
        let crowd = Crowd { processes: 1, tasks, names: tasks };
        let start = |kind| Side::start(kind, "calls", crowd, &server.endpoint(), &[], pace);
        let mut sides = [start(Kind::Ours)?, start(Kind::Guarded)?];
        for pair in 0..pace.pairs {
            sides[pair % 2].round()?;
            sides[(pair + 1) % 2].round()?;
        }
        let (work, most) = (format!("processor time, {tasks} task(s)"), Target::AtMost(1.2));
        let [ours, theirs] = sides.each_ref().map(|side| &side.processor[..]);
        outcome.lines.push(Line::pairs(work, ours, Kind::Guarded.title(), theirs, time, most)?);
        sides.into_iter().try_for_each(|side| side.crew.end())?;
    }
    Ok(outcome)
}

/// Measures B23: locks of a user who is not root, whose right to each key of a lease etcd checks with each put.
pub(crate) fn users(pace: &Pace) -> Result<Outcome> {
    const USER: &Options<'_> = &[("user", &"shop"), ("names", &10_000)];
    let mut outcome = Outcome::default();
    for tasks in pace.either(&[64, 256, 1_024][..], &[64]) {
        let (server, cluster) = (Server::start()?, guarded()?);
        let crowd = Crowd { processes: 1, tasks: *tasks, names: *tasks };
        let start = |at: &str, user| Side::start(Kind::Ours, "calls", crowd, at, user, pace);
        let mut ours = start(&cluster.endpoints().concat(), &USER[..1])?;
        let mut theirs = start(&server.endpoint(), &[])?;
        for _ in 0..pace.pairs {
            ours.round()?;
            theirs.round()?;
        }
        let work = format!("{tasks} tasks, a name each, as a user who is not root");
        let (against, least) = ("without authentication", Target::AtLeast(0.8));
        outcome.lines.push(Line::pairs(work, &ours.rates, against, &theirs.rates, rate, least)?);
    }
    let cluster = guarded()?;
    let puts = || {
        let put = |_| {
            let from = Instant::now();
            cluster.members()[0].gateway().put("other", "")?;
            Ok(from.elapsed().as_secs_f64())
        };
        Spread::of(&(0..pace.either(1_000, 100)).map(put).collect::<Result<Vec<_>>>()?)
    };
    let before = puts()?;
    let _holder = Crew::at_work(Kind::Ours, 1, "hold", &cluster.endpoints().concat(), USER)?;
    let work = "a put of root's while a user holds 10,000 locks";
    outcome.lines.push(Line::medians(work, puts()?, "before", before, time, None));
    Ok(outcome)
}

/// Starts an etcd with authentication.
fn guarded() -> Result<Cluster> {
    let mut cluster = Cluster::start_with(1, setup().direct())?;
    cluster.enable_auth("shop", "shop", &["locks/", "locks%s/"]).map(|()| cluster)
}
