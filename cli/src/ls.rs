//! `ls`: one row a name.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use etcd_locked::{Contender, Queue, Standing};
use serde_json::json;

use crate::connection::Connection;
use crate::contender::{holders, object, queued_for, time};
use crate::failure::Failure;
use crate::options::Ls;
use crate::page::Page;
use crate::say;
use crate::time::shown;

/// Clears a terminal and goes to its first line.
const CLEAR: &str = "\x1b[2J\x1b[H";

pub(crate) async fn ls(connection: &Connection<'_>, options: &Ls) -> Result<bool, Failure> {
    let Some(every) = options.watch else {
        return list(connection, &options.below).await;
    };
    // Ctrl-C is to end a list under way too, in particular one that etcd does not answer.
    tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => Ok(true),
        failure = watch(connection, &options.below, every) => Err(failure),
    }
}

/// Lists until the output fails, or the question is wrong. A watch is for the time when etcd fails: then it says so, and goes on.
async fn watch(connection: &Connection<'_>, below: &str, every: Duration) -> Failure {
    loop {
        match watched(connection, below).await {
            Ok(()) => {}
            Err(failure @ (Failure::Output(_) | Failure::Usage(_))) => return failure,
            Err(failure) => say(format_args!("etcd-locked: {failure}")),
        }
        tokio::time::sleep(every).await;
    }
}

/// Lists once, on an empty terminal.
async fn watched(connection: &Connection<'_>, below: &str) -> Result<(), Failure> {
    if !connection.json && io::stdout().is_terminal() {
        write!(io::stdout(), "{CLEAR}")?;
    }
    list(connection, below).await?;
    if connection.json {
        // Shows the end of a round, also of one without a name.
        writeln!(io::stdout())?;
    }
    Ok(io::stdout().flush()?)
}

/// Lists once; tells whether there is a name.
async fn list(connection: &Connection<'_>, below: &str) -> Result<bool, Failure> {
    let mut names = connection.locks.list(below);
    let mut page = Page::new(["NAME", "MODE", "HOLDER", "HELD FOR", "WAITING", "LONGEST WAIT"]);
    let mut found = false;
    loop {
        let next = names.next().await;
        if next.is_err() {
            page.flush()?; // what was read is shown all the same
        }
        let Some(queue) = next? else { break };
        found = true;
        match connection.json {
            true => writeln!(io::stdout(), "{}", row_object(&queue))?,
            false => page.row(row(&queue))?,
        }
    }
    page.flush()?;
    if !found && !connection.json && io::stdout().is_terminal() {
        writeln!(io::stdout(), "no name is locked below {}{below}", connection.prefix)?;
    }
    Ok(found)
}

fn row(queue: &Queue) -> [String; 6] {
    let first = queue.holders().next();
    let of = |what: fn(&Contender) -> String| first.map_or_else(|| "-".to_owned(), what);
    [
        queue.name().to_owned(),
        of(|it| it.sharing().word().to_owned()),
        holders(queue).unwrap_or_else(|| "-".to_owned()),
        of(time),
        queue.waiters().count().to_string(),
        longest_wait(queue).map_or_else(|| "-".to_owned(), shown),
    ]
}

fn row_object(queue: &Queue) -> serde_json::Value {
    let all = queue.contenders();
    let holders = all.iter().filter(|it| it.standing() != Standing::Waits);
    json!({
        "name": queue.name(),
        "holders": holders.map(object).collect::<Vec<_>>(),
        "waiting": queue.waiters().count(),
        "longest_wait_ms": longest_wait(queue).map(|it| it.as_millis()),
    })
}

fn longest_wait(queue: &Queue) -> Option<Duration> {
    queue.waiters().filter_map(queued_for).max()
}
