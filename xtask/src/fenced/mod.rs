//! `cargo xtask fenced`: shows whether a holder that was stopped in the middle of a transaction commits after the next holder.
//!
//! Rounds are played in lanes at once, on one etcd and one PostgreSQL, or a SQLite file each. Some are played without `fenced`: if
//! no commit comes too late there, the others show nothing.

mod judge;
mod page;
mod round;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use etcd_locked_devkit::{Postgres, Setup};

use self::judge::{Fate, goes_down, judge};
use self::round::{Body, Database, End, Job, Lane, Place, Played, Spoilt, Step, Write};
use crate::options::Rounds;
use crate::{Result, lanes, say, workspace};

/// How often a round is played again that the machine was too slow for.
const ATTEMPTS: usize = 5;

/// The page, below the workspace's root.
const PAGE: &str = "tests/FENCED.md";

/// What PostgreSQL needs for its log to tell the order of commits, and for two sessions a lane.
const SETTINGS: [&str; 2] = ["wal_level=logical", "max_connections=300"];

/// The program that holds the locks.
const HOLDER: (&str, &str) = ("etcd-locked-tests", "fenced");

/// A round that was played to its end, and judged.
#[derive(Debug)]
struct Seen {
    job: Job,
    end: End,
    fate: Fate,
}

/// All rounds.
#[derive(Debug)]
struct Show {
    seen: Vec<Seen>,
    /// Rounds that came to no end, or to one that contradicts itself.
    failed: Vec<String>,
    /// How often a round was played again.
    again: usize,
    /// Each database, with its version.
    versions: [String; 2],
}

impl Show {
    /// How often a commit came too late.
    fn stale(&self, is: impl Fn(&Job) -> bool) -> usize {
        let stale = self.seen.iter().filter(|it| it.fate == Fate::Stale);
        stale.filter(|it| is(&it.job)).count()
    }

    fn rounds(&self, is: impl Fn(&Job) -> bool) -> usize {
        self.seen.iter().filter(|it| is(&it.job)).count()
    }
}

/// Plays the rounds, and prints the tables; `--write` writes the page.
pub(crate) fn fenced(times: usize, rounds: &Rounds) -> Result<String> {
    let lanes = rounds.lanes.get();
    let etcd = rounds.asked.find()?;
    say::step("PostgreSQL");
    let postgres = Postgres::start(&SETTINGS)?;
    let member = Setup::default().binary(&etcd.server).start()?;
    let folder = tempfile::tempdir().map_err(|error| format!("a scratch directory: {error}"))?;
    say::step("building the holders (the first time takes a minute or two)");
    let [program] = workspace::build(&[], [HOLDER])?;
    let place = Place {
        program: &program,
        endpoint: &member.endpoint(),
        postgres: &postgres.url(),
        folder: folder.path(),
    };
    let jobs = jobs(times);
    say::step(format_args!("{} rounds, {lanes} at once", jobs.len()));
    let begun = Instant::now();
    let show = play(place, &jobs, lanes)?;
    for failure in &show.failed {
        eprintln!("   {failure}");
    }
    let tables = page::tables(&show);
    println!("{tables}");
    verdict(&show)?;
    if rounds.write {
        let page = page::page(&etcd, &show, &tables);
        workspace::write(workspace::root().join(PAGE), page)?;
    }
    let without = |job: &Job| !job.fenced;
    Ok(format!(
        "fenced: ok — no stale commit in {} rounds on {} and {} on {} ({} of {} without `fenced`), on etcd {}, in {:.0} s",
        show.rounds(|job| job.fenced && job.database == Database::Postgres),
        show.versions[0],
        show.rounds(|job| job.fenced && job.database == Database::Sqlite),
        show.versions[1],
        show.stale(without),
        show.rounds(without),
        etcd.version,
        begun.elapsed().as_secs_f64()
    ))
}

fn verdict(show: &Show) -> Result<()> {
    let stale = show.stale(|job| job.fenced);
    if stale > 0 {
        return Err(format!("{stale} times a fenced holder committed after the next"));
    }
    if !show.failed.is_empty() {
        let failed = show.failed.len();
        return Err(format!("{failed} rounds did not go as they must"));
    }
    for database in [Database::Postgres, Database::Sqlite] {
        if show.stale(|job| job.database == database) == 0 {
            return Err(format!(
                "on {database:?} no commit came too late without `fenced` either, so this shows nothing"
            ));
        }
    }
    Ok(())
}

/// The rounds: so many on each database, its kinds in turn. A fifth of that is stopped anywhere, perhaps after its commit, and a fifth
/// is played without `fenced`.
fn jobs(times: usize) -> Vec<Job> {
    use Body::{Dropped, GoesOn, Polled};
    use Step::{Anywhere, BeforeFence, Limited, Written};
    let fenced = [
        (BeforeFence, GoesOn),
        (Written, GoesOn),
        (BeforeFence, Dropped),
        (Written, Dropped),
        (BeforeFence, Polled),
        (Written, Polled),
        // SQLite has no such limit.
        (Limited, GoesOn),
        (Limited, Dropped),
        (Limited, Polled),
    ];
    let anywhere = [(Anywhere, GoesOn), (Anywhere, Dropped)];
    let bare = [
        (BeforeFence, GoesOn),
        (Written, GoesOn),
        (Written, Polled),
        (BeforeFence, Dropped),
        (Written, Dropped),
    ];
    let mut jobs = Vec::new();
    for n in 0..times {
        for (database, kinds) in
            [(Database::Postgres, &fenced[..]), (Database::Sqlite, &fenced[..6])]
        {
            let mut add = |fenced, kinds: &[(Step, Body)], n: usize| {
                let (step, body) = kinds[n % kinds.len()];
                jobs.push(Job { fenced, database, step, body });
            };
            add(true, kinds, n);
            if n.is_multiple_of(5) {
                add(true, &anywhere, n / 5);
                add(false, &bare, n / 5);
            }
        }
    }
    jobs
}

/// Plays all rounds, in lanes, and judges them.
fn play(place: Place<'_>, jobs: &[Job], lanes: usize) -> Result<Show> {
    let clerk = place.holder()?;
    let postgres = clerk.prepare(place.postgres)?;
    let sqlite = clerk.prepare(&format!("sqlite:{}", place.folder.join("version").display()))?;
    let again = AtomicUsize::new(0);
    let results =
        lanes::play(jobs, lanes, |lane, job, number| play_one(place, lane, *job, number, &again))?;
    let mut ledger: HashMap<String, Vec<Write>> = HashMap::new();
    for (name, write) in clerk.ledger(place.postgres)? {
        ledger.entry(name).or_default().push(write);
    }
    let mut show = Show {
        seen: Vec::new(),
        failed: Vec::new(),
        again: again.into_inner(),
        versions: [(Database::Postgres, postgres), (Database::Sqlite, sqlite)]
            .map(|(database, version)| format!("{database} {version}")),
    };
    for (&job, played) in jobs.iter().zip(results) {
        let judged = played.and_then(|mut played| {
            let own = played.ledger.take();
            let writes = own.or_else(|| ledger.remove(&played.name));
            let fate = judge(job, &played, &writes.unwrap_or_default())?;
            Ok((played.first, fate))
        });
        match judged {
            Ok((end, fate)) => show.seen.push(Seen { job, end, fate }),
            Err(error) => show.failed.push(format!("{job:?}: {error}")),
        }
    }
    // Those that were played again, whichever they are: what they have written is there all the same.
    for (name, writes) in ledger {
        if goes_down(&writes) {
            show.failed.push(format!("{name}: {writes:?}"));
        }
    }
    Ok(show)
}

/// Plays a round, again where the machine was too slow for it. After a spoilt one the lane is made anew, because its processes are
/// somewhere in that round.
fn play_one<'a>(
    place: Place<'a>,
    lane: &mut Option<Lane<'a>>,
    job: Job,
    number: usize,
    again: &AtomicUsize,
) -> Result<Played> {
    for attempt in 0..ATTEMPTS {
        let mut own = match lane.take() {
            Some(own) => own,
            None => Lane::new(place)?,
        };
        match own.play(job, number, attempt) {
            Ok(played) => {
                *lane = Some(own);
                return Ok(played);
            }
            Err(Spoilt::Slow) => again.fetch_add(1, Ordering::Relaxed),
            Err(Spoilt::Failed(error)) => return Err(error),
        };
    }
    Err("the machine is too slow for a TTL of 2 s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_spread_over_databases_and_kinds() {
        let jobs = jobs(90);
        let many = |database, is: &dyn Fn(&Job) -> bool| {
            let of_it = jobs.iter().filter(|job| job.database == database);
            of_it.filter(|job| is(job)).count()
        };
        for database in [Database::Postgres, Database::Sqlite] {
            let anywhere = |job: &Job| job.step == Step::Anywhere;
            assert_eq!(many(database, &|job| job.fenced && !anywhere(job)), 90);
            assert_eq!(many(database, &|job| job.fenced && anywhere(job)), 18);
            assert_eq!(many(database, &|job| !job.fenced), 18);
        }
        let limited = |job: &Job| job.step == Step::Limited;
        assert_eq!(many(Database::Postgres, &limited), 30);
        assert_eq!(many(Database::Sqlite, &limited), 0);
    }

    #[test]
    fn a_show_without_a_stale_commit_on_each_database_shows_nothing() {
        let seen = |fenced, fate| Seen {
            job: Job { fenced, database: Database::Postgres, ..jobs(1)[0] },
            end: End::Committed,
            fate,
        };
        let show = |seen| Show { seen, failed: Vec::new(), again: 0, versions: Default::default() };
        let control = |database| {
            let mut control = seen(false, Fate::Stale);
            control.job.database = database;
            control
        };
        let [postgres, sqlite] =
            [Database::Postgres, Database::Sqlite].map(|database| move || control(database));
        let before = || seen(true, Fate::Before);
        assert!(verdict(&show(vec![before(), postgres(), sqlite()])).is_ok());
        assert!(verdict(&show(vec![before(), postgres()])).is_err());
        assert!(verdict(&show(vec![before(), sqlite()])).is_err());
        let stale = seen(true, Fate::Stale);
        assert!(verdict(&show(vec![stale, postgres(), sqlite()])).is_err());
    }
}
