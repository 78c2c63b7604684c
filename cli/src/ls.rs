//! Command `ls`: one row per name.

use std::cmp::Reverse;
use std::time::Duration;

use etcd_locked::{Contender, Queue};
use serde_json::json;

use crate::connection::{Connection, answer};
use crate::contender::{held_for, object};
use crate::failure::Failure;
use crate::options::{Ls, Sort};
use crate::output::{on_terminal, print, print_object, print_own, say};
use crate::page::Page;
use crate::row::Row;

/// Clears a terminal and goes to its first line.
const CLEAR: &[u8] = b"\x1b[2J\x1b[H";

const UNCOUNTED: &str = "calls that wait in the process of a holder are not counted: its `etcd_locked::status()` lists them";

pub(crate) async fn ls(connection: &Connection<'_>, options: &Ls) -> Result<bool, Failure> {
    let Some(every) = options.watch else {
        return list(connection, options).await.map(|()| true);
    };
    // Ctrl-C also ends a list in progress, in particular one to which etcd does not respond.
    tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => Ok(true),
        failure = watch(connection, options, every) => Err(failure),
    }
}

/// Lists until the output fails, or the arguments are wrong. Users watch while etcd fails, so it reports a failure and continues.
async fn watch(connection: &Connection<'_>, options: &Ls, every: Duration) -> Failure {
    loop {
        if !connection.json && on_terminal() {
            let _ = print_own(CLEAR); // the next output fails too
        }
        let listed = list(connection, options).await;
        // An empty line marks the end of a round, also of one without names.
        let listed = listed.and_then(|()| if connection.json { Ok(print("")?) } else { Ok(()) });
        match listed {
            Ok(()) => {}
            Err(failure @ (Failure::Output(_) | Failure::Usage(_))) => return failure,
            Err(failure) => say(format_args!("etcd-locked: {failure}")),
        }
        tokio::time::sleep(every).await;
    }
}

/// Lists once: each name as it is read, or all of them at the end if they are sorted.
async fn list(connection: &Connection<'_>, options: &Ls) -> Result<(), Failure> {
    let mut names = connection.locks.list(&options.below);
    let mut page = Page::new(["NAME", "MODE", "HOLDER", "HELD FOR", "WAITING", "LONGEST WAIT"]);
    let mut show = |queue: &Queue| match connection.json {
        true => print_object(&row_object(queue)),
        false => page.row(Row::of(queue).cells()),
    };
    let mut sorted = Vec::new();
    let mut found = false;
    let read = loop {
        match answer(names.next()).await {
            Ok(Some(queue)) if !options.lets_through(&queue) => {}
            Ok(Some(queue)) => {
                found = true;
                match options.sort {
                    Some(_) => sorted.push(queue),
                    None => show(&queue)?,
                }
            }
            Ok(None) => break Ok(()),
            Err(failure) => break Err(failure),
        }
    };
    sorted.sort_by_cached_key(|queue| Reverse(options.rank(queue)));
    sorted.iter().try_for_each(show)?;
    page.flush()?; // shows the names read so far, even if etcd fails
    read?;
    match found {
        _ if connection.json || !on_terminal() => Ok(()),
        true => Ok(print(UNCOUNTED)?),
        false => {
            Ok(print(&format!("no name is locked below {}{}", connection.prefix, options.below))?)
        }
    }
}

impl Ls {
    fn lets_through(&self, queue: &Queue) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.is_none() || wanted.as_deref() == found
        };
        let fits = |it: &Contender| {
            is(&self.service, it.holder().map(|it| it.service()))
                && is(&self.host, it.holder().map(|it| it.host()))
                && held_for(it).unwrap_or_default() >= self.held_for
        };
        let all = self.service.is_none() && self.host.is_none() && self.held_for.is_zero();
        all || queue.holders().any(fits)
    }

    /// Returns the sort key; the greatest comes first.
    fn rank(&self, queue: &Queue) -> (usize, Option<Duration>) {
        let row = Row::of(queue);
        match self.sort {
            Some(Sort::Held) => (0, row.held),
            _ => (row.waiting, row.longest),
        }
    }
}

fn row_object(queue: &Queue) -> serde_json::Value {
    let row = Row::of(queue);
    json!({
        "name": row.name,
        "holders": queue.holders().map(object).collect::<Vec<_>>(),
        "waiting": row.waiting,
        "longest_wait_ms": row.longest.map(|it| it.as_millis()),
    })
}
