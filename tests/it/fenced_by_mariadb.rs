//! Fenced transactions of MariaDB, where it is installed: it takes two statements, as MySQL does.

use std::io::{self, Write};

use etcd_locked::sqlx::migration;
use etcd_locked_devkit::MariaDb;
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{MySql, MySqlPool};
use tokio::task::spawn_blocking;

use crate::corner::{Corner, take};
use crate::fenced::{is_refused, written};
use crate::limit;

/// A server with a row, which is to have the name of its last writer.
struct Database {
    pool: MySqlPool,
    _server: MariaDb,
}

impl Database {
    async fn new() -> Self {
        let server = spawn_blocking(MariaDb::start).await.expect("no panic");
        let server = server.expect("a server");
        let options: MySqlConnectOptions = server.url().parse().expect("an address");
        let root = MySqlPool::connect_with(options.clone()).await;
        let root = root.expect("an answer");
        let create = sqlx::query("create database shop").execute(&root);
        create.await.expect("an answer");
        let pool = MySqlPoolOptions::new().connect_with(options.database("shop"));
        let database = Self {
            pool: pool.await.expect("an answer"),
            _server: server,
        };
        for statement in [
            migration::<MySql>(),
            migration::<MySql>(),
            "create table orders (writer text)",
            "insert into orders values ('-')",
        ] {
            let executed = sqlx::query(statement).execute(&database.pool).await;
            executed.expect("an answer");
        }
        database
    }

    async fn writer(&self) -> String {
        let read = sqlx::query_scalar("select writer from orders");
        read.fetch_one(&self.pool).await.expect("an answer")
    }
}

#[limit::test]
async fn holders_write_one_after_the_other_and_late_ones_not_at_all() {
    if !MariaDb::is_installed() {
        // Past the capture of a test's output.
        let _ = writeln!(io::stderr(), "left out: MariaDB, which is not installed");
        return;
    }
    let (corner, database) = (Corner::new().await, Database::new().await);
    let (a, b) = (corner.locks().await, corner.locks().await);
    let first = take("a free name", a.lock("orders/7")).await;
    written(&database.pool, &first, "a")
        .await
        .unwrap()
        .commit()
        .await
        .unwrap();
    let open = written(&database.pool, &first, "a again").await.unwrap();
    corner.take_away("orders/7").await;
    let next = take("the name that was taken away", b.lock("orders/7")).await;
    // The next holder's fence waits for the transaction that is open.
    let (later, ()) = tokio::join!(written(&database.pool, &next, "b"), async {
        open.commit().await.unwrap();
        assert_eq!(database.writer().await, "a again");
    });
    later.unwrap().commit().await.unwrap();
    let late = written(&database.pool, &first, "a, late")
        .await
        .unwrap_err();
    assert!(is_refused(&late), "{late:?}");
    assert_eq!(database.writer().await, "b");
}
