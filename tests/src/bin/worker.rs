//! Worker process that takes locks, for tests that kill, stop and restart whole processes.
//!
//! It uses the process-wide engine, as services do: the first lock starts it from the environment, or the command `init`
//! does. It reads commands from standard input, one per line, and reports on standard output:
//!
//! | command | output |
//! |---|---|
//! | `work <job>`, `work-five <job>` | `held <job> <token> <ns>`, then `polled <job> <ns>` at every poll of the body |
//! | `done <job>` | `released <job>` once the body has ended; `lost <job> <cause> <ns>` if the lock was lost before |
//! | `churn <job> <times> <directory>` | `churned <job>` |
//! | `tally <job> <directory>` | `tallied <job> <visits>` after `done <job>`; `tallied <job> <visits> <variant> <retryable> <message>` after a failure |
//! | `fenced <name> <step> <url>` | `stops <name>` at that step of a fenced transaction; after `go`, `ended <name> <step> committed` or `refused` |
//! | `lock <name>` | `locked <name>` |
//! | `fork <name>` | forks a child while the name is locked. The child: `forked <variant> <message>` for its own call, `listed …` for a listing, and `released <variant> <message>` for its copy of the lock. Then `parent <name>` after the child has ended, and `released <name>` after `done <name>` |
//! | `init <endpoints>` | `initialised` |
//! | `runtimes <job>` | `runtimes <job>` |
//! | `shutdown <ms>` | `shut down` |
//!
//! With `WORKER_LOGS` set to a level, it also prints log lines of the library, as `logged <LEVEL> <message and fields>`.
//!
//! Every failure is reported as `failed <what> <variant of LockError> <message>`. The process ends with its standard input.

use std::collections::HashMap;
use std::future::{Future, poll_fn, ready};
use std::pin::pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use etcd_locked::{Config, LockError, current, etcd_locked};
use etcd_locked_tests::{Lines, Witness, chain, commands, fenced, monotonic_ns};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::time::interval;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;

/// Signal that lets fenced transactions continue.
static GO: Notify = Notify::const_new();

#[tokio::main]
async fn main() {
    tracing::subscriber::set_global_default(log_lines()).expect("the only subscriber");
    let mut commands = commands();
    let mut bodies = HashMap::new();
    while let Some(command) = commands.recv().await {
        let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        execute(&words, &mut bodies).await;
    }
}

async fn execute(words: &[&str], bodies: &mut HashMap<String, Arc<Notify>>) {
    match *words {
        ["work", job] => spawn_body(job, bodies, |job, done| async move { work(&job, done).await }),
        ["work-five", job] => {
            spawn_body(job, bodies, |job, done| async move { work_five(&job, done).await })
        }
        ["done", job] => match bodies.get(job) {
            Some(done) => done.notify_one(),
            None => println!("failed {job} Unknown no such job"),
        },
        ["churn", job, times, directory] => {
            let (job, witness) = (job.to_owned(), Witness::new(directory));
            let times: u32 = times.parse().expect("a number of times");
            tokio::spawn(async move {
                for _ in 0..times {
                    if let Err(error) = visit(&job, &witness).await {
                        return report(&job, &error);
                    }
                }
                println!("churned {job}");
            });
        }
        ["tally", job, directory] => {
            let done = Arc::new(Notify::new());
            bodies.insert(job.to_owned(), done.clone());
            let (job, witness) = (job.to_owned(), Witness::new(directory));
            tokio::spawn(async move {
                let mut stop = pin!(done.notified());
                let mut visits = 0;
                let failed = loop {
                    tokio::select! {
                        biased;
                        () = &mut stop => break None,
                        () = ready(()) => {}
                    }
                    match visit(&job, &witness).await {
                        Ok(()) => visits += 1,
                        Err(error) => break Some(error),
                    }
                };
                match failed {
                    None => println!("tallied {job} {visits}"),
                    Some(error) => {
                        let (variant, again) = (variant(&error), error.is_retryable());
                        println!("tallied {job} {visits} {variant} {again} {}", chain(&error));
                    }
                }
            });
        }
        ["lock", name] => match etcd_locked::lock(name).try_once().await {
            Ok(_held) => println!("locked {name}"),
            Err(error) => report(name, &error),
        },
        ["init", endpoints] => match etcd_locked::init(Config::new(endpoints.split(','))).await {
            Ok(_) => println!("initialised"),
            Err(error) => report("init", &error),
        },
        ["init-beside", endpoint, name] => {
            let init = etcd_locked::init(Config::new([endpoint]));
            match tokio::try_join!(init, etcd_locked::lock(name)) {
                Ok(_) => println!("locked {name}"),
                Err(error) => report(name, &error),
            }
        }
        ["init-shut", endpoint, name] => {
            let init = etcd_locked::init(Config::new([endpoint]));
            let shut = etcd_locked::shutdown(Duration::from_secs(1));
            let (_, locked, _) = tokio::join!(init, etcd_locked::lock(name), shut);
            report(name, &locked.map(drop).expect_err("a shutdown has begun"));
        }
        ["fork", name] => {
            spawn_body(name, bodies, |name, done| async move { fork_under(&name, &done).await })
        }
        ["runtimes", job] => {
            let job = job.to_owned();
            thread::spawn(move || runtimes(&job));
        }
        ["fenced", name, step, url] => {
            let [name, step, url] = [name, step, url].map(str::to_owned);
            tokio::spawn(async move {
                let ended = fenced::write_and_stop(&name, &step, &url, &GO).await;
                println!("ended {name} {step} {}", fenced::ended(&ended));
            });
        }
        ["go"] => GO.notify_waiters(),
        ["shutdown", grace] => {
            etcd_locked::shutdown(Duration::from_millis(grace.parse().expect("milliseconds")))
                .await;
            println!("shut down");
        }
        _ => println!("failed command Unknown {words:?}"),
    }
}

#[etcd_locked("jobs/<job>", wait = "forever")]
async fn work(job: &str, done: Arc<Notify>) -> Result<(), LockError> {
    body(job, &done).await;
    Ok(())
}

#[etcd_locked("jobs/<job>", wait = "forever", ttl = "5s")]
async fn work_five(job: &str, done: Arc<Notify>) -> Result<(), LockError> {
    body(job, &done).await;
    Ok(())
}

#[etcd_locked("jobs/<job>", wait = "forever")]
async fn visit(job: &str, witness: &Witness) -> Result<(), LockError> {
    if let Err(error) = witness.visit().await {
        println!("failed {job} Overlap {error}");
    }
    Ok(())
}

/// Body of a job: runs until the command `done`, and reports each poll.
async fn body(job: &str, done: &Notify) {
    let token = current().map(|held| held.token().as_i64());
    println!("held {job} {} {}", token.unwrap_or_default(), monotonic_ns());
    let mut tick = interval(Duration::from_millis(20));
    let mut work = pin!(async {
        loop {
            tokio::select! {
                () = done.notified() => return,
                _ = tick.tick() => {}
            }
        }
    });
    poll_fn(|cx| {
        println!("polled {job} {}", monotonic_ns());
        work.as_mut().poll(cx)
    })
    .await;
}

fn spawn_body<F: Future<Output = Result<(), LockError>> + Send + 'static>(
    job: &str,
    bodies: &mut HashMap<String, Arc<Notify>>,
    call: impl FnOnce(String, Arc<Notify>) -> F,
) {
    let done = Arc::new(Notify::new());
    bodies.insert(job.to_owned(), done.clone());
    let (job, call) = (job.to_owned(), call(job.to_owned(), done));
    tokio::spawn(async move {
        match call.await {
            Ok(()) => println!("released {job}"),
            Err(LockError::Lost { cause, .. }) => {
                println!("lost {job} {cause:?} {}", monotonic_ns())
            }
            Err(error) => report(&job, &error),
        }
    });
}

/// Forks while a name is locked. The child uses what it has inherited, and ends.
async fn fork_under(name: &str, done: &Notify) -> Result<(), LockError> {
    let locks = etcd_locked::init(Config::from_env()?).await?;
    let guard = locks.lock(name).await?;
    let child = name.to_owned();
    // The child has only the forking thread.
    let guard = thread::spawn(move || match fork::fork().expect("a child") {
        fork::Fork::Child => {
            runtime().block_on(async {
                let called = etcd_locked::lock(child).wait_forever().await;
                answered("forked", &called.map(drop));
                let listed = locks.list("").next().await;
                answered("listed", &listed.map(drop));
                answered("released", &guard.release().await);
            });
            std::process::exit(0);
        }
        fork::Fork::Parent(child) => {
            fork::waitpid(child).expect("the child's end");
            guard
        }
    });
    let guard = guard.join().expect("no panic");
    println!("parent {name}");
    done.notified().await;
    guard.release().await
}

fn answered(what: &str, result: &Result<(), LockError>) {
    match result {
        Ok(()) => println!("{what} Ok"),
        Err(error) => println!("{what} {} {error}", variant(error)),
    }
}

/// Makes two tokio runtimes contend through the one engine of the process; one runtime ends, the other continues.
fn runtimes(job: &str) {
    let directory =
        std::env::temp_dir().join(format!("etcd-locked-runtimes-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("a directory for the witness");
    let witness = Witness::new(&directory);
    let churn = |runtime: &Runtime| runtime.block_on(async { repeat(job, &witness, 20).await });
    let (first, second) = (runtime(), runtime());
    let results = thread::scope(|scope| {
        let one = scope.spawn(|| churn(&first));
        let other = scope.spawn(|| churn(&second));
        [one.join().expect("no panic"), other.join().expect("no panic")]
    });
    drop(first);
    for result in results.into_iter().chain([churn(&second)]) {
        if let Err(error) = result {
            report(job, &error);
        }
    }
    match witness.count() {
        Ok(60) => println!("runtimes {job}"),
        other => println!("failed {job} Count {other:?}"),
    }
    let _ = std::fs::remove_dir_all(directory);
}

async fn repeat(job: &str, witness: &Witness, times: u32) -> Result<(), LockError> {
    for _ in 0..times {
        visit(job, witness).await?;
    }
    Ok(())
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn report(what: &str, error: &LockError) {
    println!("failed {what} {} {}", variant(error), chain(error));
}

fn variant(error: &LockError) -> &'static str {
    match error {
        LockError::NotInitialized { .. } => "NotInitialized",
        LockError::AlreadyInitialized => "AlreadyInitialized",
        LockError::Config { .. } => "Config",
        LockError::RuntimeEnded { .. } => "RuntimeEnded",
        LockError::Held { .. } => "Held",
        LockError::Timeout { .. } => "Timeout",
        LockError::Lost { .. } => "Lost",
        LockError::Deadlock { .. } => "Deadlock",
        LockError::OrderInversion { .. } => "OrderInversion",
        LockError::Overloaded { .. } => "Overloaded",
        LockError::SelfDeadlock { .. } => "SelfDeadlock",
        LockError::ShuttingDown => "ShuttingDown",
        LockError::InvalidName { .. } => "InvalidName",
        LockError::PermissionDenied { .. } => "PermissionDenied",
        LockError::Backend { .. } => "Backend",
        _ => "Other",
    }
}

/// Makes the subscriber that prints log lines of the library.
fn log_lines() -> impl Subscriber + Send + Sync {
    let level = std::env::var("WORKER_LOGS");
    let level = level.map_or(LevelFilter::OFF, |level| level.parse().expect("a level"));
    Lines::new("etcd_locked", level, |_, line| println!("logged {line}"))
}
