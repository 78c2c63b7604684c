//! Command `who`: holders and waiters of one name, in order.

use serde_json::json;

use crate::connection::{Connection, answer};
use crate::contender::{cells, object};
use crate::cycle;
use crate::failure::Failure;
use crate::output::{on_terminal, print, print_object, say};
use crate::page::Page;

pub(crate) async fn who(connection: &Connection<'_>, name: &str) -> Result<bool, Failure> {
    let Some(queue) = connection.queue(name).await? else {
        return Ok(false);
    };
    // Holders and waiters are known already, so a failed search does not end the command.
    let cycle = match answer(cycle::of(connection, &queue)).await {
        Ok(cycle) => Some(cycle),
        Err(failure) => {
            say(format_args!(
                "etcd-locked: whether `{name}` is in a deadlock is unknown: {failure}"
            ));
            None
        }
    };
    if connection.json {
        let contenders: Vec<_> = queue.contenders().iter().map(object).collect();
        let object = json!({ "name": name, "contenders": contenders, "cycle": cycle });
        print_object(&object)?;
        return Ok(true);
    }
    let mut page = Page::new(["", "PROCESS", "MODE", "FOR", "LEASE", "ALSO ASKED FOR"]);
    for contender in queue.contenders() {
        let [standing, process, mode, time] = cells(contender);
        let lease = contender.lease();
        let lease = lease.map_or_else(|| "none: never expires".to_owned(), |it| format!("{it:x}"));
        page.row([standing, process, mode, time, lease, contender.group().join(" ")])?;
    }
    page.flush()?;
    if on_terminal() {
        print(
            "calls that wait in the process of a holder are not listed: its `etcd_locked::status()` has them",
        )?;
    }
    if let Some(cycle) = cycle.filter(|cycle| !cycle.is_empty()) {
        print(&format!(
            "deadlock: {}; one of these calls is refused with `Deadlock` within five seconds",
            cycle.join(" waits for ")
        ))?;
    }
    Ok(true)
}
