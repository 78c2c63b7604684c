//! Worker process: makes calls of all kinds, and reports their outcomes to the witness.
//!
//! Its arguments are in `options.rs`, the endpoints in the environment. After a line on its standard input it makes no more calls, lets
//! its calls end, and reports that. After a second line it shuts the engine down and ends. It ends at once if the witness ends, or if
//! one of its tasks panics unintentionally.

mod body;
pub(crate) mod calls;
pub(crate) mod connection;
mod etcdctl;
mod logs;
pub(crate) mod mix;
mod service;

use std::error::Error;
use std::time::Duration;

use fastrand::Rng;
use tokio::io::AsyncBufReadExt;
use tokio::sync::watch;
use tokio::time::sleep;

use self::calls::{Caller, HOT, TURNS};
use self::connection::WitnessConnection;
use self::logs::Logs;
use self::service::Owner;
use crate::history::Said;
use crate::options::{Who, Worker};
use crate::stalls;

/// Number of tasks of a worker that make calls of the mix.
const ROAMERS: u64 = 10;
/// Grace of the shutdown: longer than any body lasts.
const GRACE: Duration = Duration::from_secs(20);

#[tokio::main(worker_threads = 2)]
pub(crate) async fn run(worker: &Worker) -> etcd_locked_devkit::Result<()> {
    work(worker).await.map_err(|error| format!("worker: {error}"))
}

async fn work(worker: &Worker) -> Result<(), Box<dyn Error>> {
    let (who, mix) = (worker.who, worker.mix);
    let witness = WitnessConnection::connect(&worker.witness, worker.process).await?;
    let watched = witness.clone();
    stalls::watch(move |since| watched.say(Said::Stalled { since }));
    tracing::subscriber::set_global_default(Logs(witness.clone()))?;
    end_at_panics();
    // Only the library itself makes turns: peers do not promise an order across processes, and mistakes are made in other calls.
    let turns = if who == Who::Ours { TURNS } else { 0 };
    let (drain, draining) = watch::channel(false);
    let mut random = Rng::with_seed(worker.seed);
    let mut tasks = Vec::new();
    for task in 0..HOT + turns + ROAMERS {
        let service = match who {
            Who::LockService => Some(Box::new(Owner::connect().await?)),
            _ => None,
        };
        let (witness, draining) = (witness.clone(), draining.clone());
        let mut caller = Caller { witness, random: random.fork(), who, service, draining };
        tasks.push(tokio::spawn(async move {
            while !*caller.draining.borrow() {
                if task < HOT {
                    caller.hot(task).await;
                } else if task < HOT + turns {
                    caller.turn(task - HOT).await;
                } else {
                    let kind = mix.choose(&mut caller.random);
                    caller.call(kind).await;
                }
                sleep(caller.between(10, 100)).await;
            }
            if let Some(mut service) = caller.service {
                service.give_up().await;
            }
        }));
    }
    let mut stdin = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    stdin.next_line().await?;
    drain.send_replace(true);
    for task in tasks {
        task.await?;
    }
    witness.say(Said::Idle);
    stdin.next_line().await?;
    let drained = etcd_locked::shutdown(GRACE).await;
    witness.say(Said::Drained { left: drained.left().len(), leases: drained.leases() });
    witness.flushed().await;
    Ok(())
}

/// Ends the process at the first panic of any task or thread, which the runner notices. Panics on purpose are resumed ones, which
/// do not call the hook.
fn end_at_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}
