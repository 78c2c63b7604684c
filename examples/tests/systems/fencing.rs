//! Row `fencing`, transactions of four PostgreSQL clients: a process that is stopped in the middle of one cannot commit late.

use std::time::Duration;

use etcd_locked_devkit::Postgres;
use etcd_locked_devkit::limit::blocking;
use sqlx::PgPool;
use tokio::time::sleep;

use crate::etcd::Etcd;
use crate::limit::{run, within};
use crate::stage::Stage;

const CLIENTS: [&str; 4] = ["sqlx", "tokio-postgres", "diesel", "sea-orm"];
const STEPS: [&str; 3] = ["fence", "write", "commit"];
/// Number of transactions of each client that are stopped, before each step in turn.
const STOPPED: usize = 20;

#[test]
fn stopped_payers_commit_nothing_late() {
    run(async {
        let (etcd, server) = (Etcd::start().await, blocking(|| Postgres::start(&[])).await);
        for client in CLIENTS {
            stop_payers(client, &etcd, &server.url()).await;
        }
    });
}

async fn stop_payers(client: &str, etcd: &Etcd, url: &str) {
    let stage = Stage::new(etcd.endpoints());
    let start = |args: &[&str]| {
        let environment = [("DATABASE_URL", url), ("ETCD_LOCKED_TTL", "2s")];
        stage.start_with(env!("CARGO_BIN_EXE_fencing"), args, &environment)
    };
    let pay = |who| (0..STOPPED).map(move |id| start(&[client, who, &id.to_string()]));
    stage.ends_well(&mut start(&["migrate"])).await;

    let mut stopped: Vec<_> = pay("stopped").collect();
    for (id, payer) in stopped.iter_mut().enumerate() {
        for (at, step) in STEPS.iter().enumerate().take(id % STEPS.len() + 1) {
            if at > 0 {
                payer.enter();
            }
            stage.says(&format!("stopped {id}: Enter to {step}")).await;
        }
    }
    stopped.iter_mut().for_each(|payer| payer.process.stop().expect("the payer runs"));
    let mut next: Vec<_> = pay("next").collect();
    next.iter_mut().for_each(|payer| STEPS.iter().for_each(|_| payer.enter()));
    // Each of the next payers has its lock, and has committed, or waits in the database for a transaction of a stopped one.
    let db = PgPool::connect(url).await.expect("PostgreSQL");
    within("the next payers", async {
        let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
        while {
            let committed = stage.count(": committed") as i64;
            let waiting: i64 = sqlx::query_scalar(waiting).fetch_one(&db).await.expect("a number");
            committed + waiting < STOPPED as i64
        } {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    for (id, payer) in stopped.iter_mut().enumerate() {
        payer.process.cont();
        STEPS.iter().skip(id % STEPS.len()).for_each(|_| payer.enter());
    }
    for payer in stopped.iter_mut().chain(&mut next) {
        stage.ends_well(payer).await;
    }
    for id in 0..STOPPED {
        let refused = stage.count(&format!("stopped {id}: not committed: lock"));
        assert!(id % STEPS.len() > 0 || refused == 1, "{client} {id}, stopped before the fence");
        let payer = sqlx::query_scalar("select paid_by from invoices where id = $1");
        let payer: String = payer.bind(id as i64).fetch_one(&db).await.expect("a row");
        assert_eq!(payer, format!("next {id}"), "{client}, stopped at {}", STEPS[id % STEPS.len()]);
    }
}
