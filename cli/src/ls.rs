//! `ls`: one row a name.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use etcd_locked::{Contender, Queue, Standing};
use serde_json::json;

use crate::connection::Connection;
use crate::contender::{mode, object, process, queued_for, time};
use crate::failure::Failure;
use crate::options::Ls;
use crate::page::Page;
use crate::time::shown;

/// Clears a terminal and goes to its first line.
const CLEAR: &str = "\x1b[2J\x1b[H";

pub(crate) async fn ls(
    connection: &Connection<'_>,
    options: &Ls,
    json: bool,
) -> Result<bool, Failure> {
    let Some(every) = options.watch else {
        return list(connection, &options.below, json).await;
    };
    loop {
        if !json && io::stdout().is_terminal() {
            write!(io::stdout(), "{CLEAR}")?;
        }
        list(connection, &options.below, json).await?;
        io::stdout().flush()?;
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            _ = tokio::signal::ctrl_c() => return Ok(true),
        }
    }
}

/// Lists once; tells whether there is a name.
async fn list(connection: &Connection<'_>, below: &str, json: bool) -> Result<bool, Failure> {
    let mut names = connection.locks.list(below);
    let mut page = Page::new([
        "NAME",
        "MODE",
        "HOLDER",
        "HELD FOR",
        "WAITING",
        "LONGEST WAIT",
    ]);
    let mut found = false;
    while let Some(queue) = names.next().await? {
        found = true;
        match json {
            true => writeln!(io::stdout(), "{}", row_object(&queue))?,
            false => page.row(row(&queue))?,
        }
    }
    page.flush()?;
    if !found && !json && io::stdout().is_terminal() {
        writeln!(
            io::stdout(),
            "no name is locked below {}{below}",
            connection.prefix
        )?;
    }
    Ok(found)
}

fn row(queue: &Queue) -> [String; 6] {
    let mut holders = queue.holders();
    let first = holders.next();
    let more = match holders.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let of = |what: fn(&Contender) -> String| first.map_or_else(|| "-".to_owned(), what);
    let waiting = queue.waiters().count();
    let longest = longest_wait(queue);
    [
        queue.name().to_owned(),
        of(|it| mode(it).to_owned()),
        of(process) + &more,
        of(time),
        waiting.to_string(),
        longest.map_or_else(|| "-".to_owned(), shown),
    ]
}

fn row_object(queue: &Queue) -> serde_json::Value {
    let all = queue.contenders();
    let holders = all.iter().filter(|it| it.standing() != Standing::Waits);
    json!({
        "name": queue.name(),
        "holders": holders.map(object).collect::<Vec<_>>(),
        "waiting": queue.waiters().count(),
        "longest_wait_ms": longest_wait(queue).map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX)),
    })
}

fn longest_wait(queue: &Queue) -> Option<Duration> {
    queue.waiters().filter_map(queued_for).max()
}
