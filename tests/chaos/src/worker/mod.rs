//! Worker process: makes calls of all kinds, and tells the witness what becomes of them.
//!
//! Its arguments are in `options.rs`, the endpoints in the environment. At a line on its standard input it stops asking and lets its
//! calls end, and says so. At a second line it shuts the engine down and ends. It ends at once with the witness, and when one of its
//! tasks panics by itself.

mod body;
pub(crate) mod calls;
pub(crate) mod connection;
pub(crate) mod etcdctl;
mod logs;
pub(crate) mod mix;
pub(crate) mod sabotage;
mod service;

use std::error::Error;
use std::time::Duration;

use fastrand::Rng;
use tokio::io::AsyncBufReadExt;
use tokio::sync::watch;
use tokio::time::sleep;

use self::calls::{Caller, HOT, Peer, TURNS};
use self::connection::WitnessConnection;
use self::etcdctl::Etcdctl;
use self::logs::Logs;
use self::service::Owner;
use crate::history::Said;
use crate::options::{self, Who, Worker};
use crate::stalls;

/// How many tasks of a worker make calls of the mix.
const ROAMERS: u64 = 10;
/// The grace of the shutdown: longer than any body lasts.
const GRACE: Duration = Duration::from_secs(20);

/// Runs the worker to its end.
pub(crate) async fn work(worker: &Worker) -> Result<(), Box<dyn Error>> {
    let (address, who) = (worker.witness.as_str(), worker.who);
    let witness = WitnessConnection::connect(address, worker.process).await?;
    let watched = witness.clone();
    stalls::watch(move |since| watched.say(Said::Stalled { since }));
    tracing::subscriber::set_global_default(Logs(witness.clone()))?;
    end_at_panics();
    // Only the library itself is asked for turns: peers promise no order across processes, and mistakes are made elsewhere.
    let turns = if who == Who::Ours { TURNS } else { 0 };
    let (drain, draining) = watch::channel(false);
    let mut random = Rng::with_seed(worker.seed);
    let mix = worker.mix;
    let mut tasks = Vec::new();
    for task in 0..HOT + turns + ROAMERS {
        let mut caller = Caller {
            witness: witness.clone(),
            random: random.fork(),
            sabotage: match who {
                Who::Mistaken(mistake) => Some(mistake),
                _ => None,
            },
            peer: match who {
                Who::Ours | Who::Mistaken(_) => None,
                Who::Peer(options::Peer::LockService) => {
                    Some(Peer::Service(Box::new(Owner::connect().await?)))
                }
                Who::Peer(options::Peer::Etcdctl) => {
                    Some(Peer::Etcdctl(Etcdctl::new(address, worker.process)?))
                }
                // The library must not make calls in their name.
                Who::Peer(options::Peer::Go | options::Peer::Aetcd) => {
                    return Err(format!("{who} has a program of its own").into());
                }
            },
            draining: draining.clone(),
        };
        let draining = draining.clone();
        tasks.push(tokio::spawn(async move {
            while !*draining.borrow() {
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
            if let Some(Peer::Service(mut owner)) = caller.peer {
                owner.give_up().await;
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

/// Ends the process at the first panic, whichever task or thread it is of: the runner sees that. Panics on purpose are resumed ones,
/// which come by no hook.
fn end_at_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}
