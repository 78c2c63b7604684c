//! Worker process: makes calls of all kinds, and tells the witness what becomes of them.
//!
//! `etcd-locked-chaos worker <witness> <process> <seed> <mix> <mistake, peer or "none">`, with the endpoints in the environment. At a
//! line on its standard input it stops asking, lets its calls end, shuts the engine down and ends. It ends at once with the
//! witness.

mod body;
pub(crate) mod calls;
pub(crate) mod connection;
pub(crate) mod etcdctl;
mod logs;
pub(crate) mod mix;
pub(crate) mod sabotage;
pub(crate) mod service;

use std::error::Error;
use std::time::Duration;

use fastrand::Rng;
use tokio::io::AsyncBufReadExt;
use tokio::sync::watch;
use tokio::time::sleep;

use self::calls::{Caller, HOT, Peer};
use self::connection::WitnessConnection;
use self::etcdctl::Etcdctl;
use self::logs::Logs;
use self::mix::Mix;
use self::sabotage::Sabotage;
use self::service::Owner;
use crate::history::Said;
use crate::stalls;

/// How many tasks of a worker make calls of the mix.
const ROAMERS: u64 = 10;
/// The grace of the shutdown: longer than any body lasts.
const GRACE: Duration = Duration::from_secs(20);

/// Runs the worker to its end.
pub(crate) async fn work(args: &[String]) -> Result<(), Box<dyn Error>> {
    let [address, process, seed, mix, sabotage] = args else {
        return Err("usage: worker <witness> <process> <seed> <mix> <sabotage>".into());
    };
    let mix = Mix::named(mix).ok_or("no such mix")?;
    let (who, sabotage) = (sabotage.as_str(), Sabotage::named(sabotage));
    let witness = WitnessConnection::connect(address, process.parse()?).await?;
    let watched = witness.clone();
    stalls::watch(move |since| watched.say(Said::Stalled { since }));
    tracing::subscriber::set_global_default(Logs(witness.clone()))?;
    let (drain, draining) = watch::channel(false);
    let mut random = Rng::with_seed(seed.parse()?);
    let mut tasks = Vec::new();
    for task in 0..HOT + ROAMERS {
        let mut caller = Caller {
            witness: witness.clone(),
            random: random.fork(),
            sabotage,
            peer: match who {
                service::NAME => Some(Peer::Service(Box::new(Owner::connect().await?))),
                etcdctl::NAME => Some(Peer::Etcdctl(Etcdctl::new(address, process)?)),
                _ => None,
            },
            draining: draining.clone(),
        };
        let draining = draining.clone();
        tasks.push(tokio::spawn(async move {
            while !*draining.borrow() {
                if task < HOT {
                    caller.hot(task).await;
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
        task.await?; // a panic ends the worker, and the witness sees that
    }
    let drained = etcd_locked::shutdown(GRACE).await;
    witness.say(Said::Drained {
        left: drained.left().len(),
        leases: drained.leases(),
    });
    witness.flushed().await;
    Ok(())
}
