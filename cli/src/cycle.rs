//! Cycle of names: each is held by a task that waits for the next one.

use std::collections::{BTreeMap, VecDeque};

use etcd_locked::Queue;
use etcd_locked::etcd_client::{Client, GetOptions};
use etcd_locked_core::{edges_of, session_root};

use crate::connection::{Connection, answer};
use crate::failure::Failure;

/// How many names are looked at: as many as the library's own search.
const NAMES: usize = 16;

/// Finds a cycle that a name is in, from that name on; empty, if it is in none. A task writes what it waits for after a second.
pub(crate) async fn of(connection: &Connection<'_>, queue: &Queue) -> Result<Vec<String>, Failure> {
    let mut client = connection.client().await?;
    let start = queue.name().to_owned();
    let mut cameby: BTreeMap<String, String> = BTreeMap::new();
    let mut next = VecDeque::from([queue.clone()]);
    let mut seen = 0;
    while let Some(queue) = next.pop_front()
        && seen < NAMES
    {
        seen += 1;
        for holder in queue.holders() {
            for waited in edges(&mut client, connection, holder.key()).await? {
                if waited == start {
                    return Ok(path(&cameby, queue.name(), &start));
                }
                if cameby.contains_key(&waited) {
                    continue;
                }
                cameby.insert(waited.clone(), queue.name().to_owned());
                next.extend(connection.locks.queue(&waited).await?);
            }
        }
    }
    Ok(Vec::new())
}

/// The names that the task waits for which holds this key.
async fn edges(
    client: &mut Client,
    connection: &Connection<'_>,
    key: &[u8],
) -> Result<Vec<String>, Failure> {
    let Ok(key) = std::str::from_utf8(key) else {
        return Ok(Vec::new());
    };
    let edges = edges_of(&session_root(&connection.prefix), key);
    let options = GetOptions::new().with_prefix().with_keys_only();
    let found = answer(client.get(&*edges, Some(options))).await?;
    let names = found.kvs().iter().filter_map(|kv| {
        let waiting = kv.key_str().ok()?.strip_prefix(&*edges)?;
        let (name, _) = waiting
            .strip_prefix(&*connection.prefix)?
            .rsplit_once('/')?;
        Some(name.to_owned())
    });
    Ok(names.collect())
}

/// The way from the start to the last name, and back to the start.
fn path(cameby: &BTreeMap<String, String>, last: &str, start: &str) -> Vec<String> {
    let mut path = vec![start.to_owned(), last.to_owned()];
    let mut at = last;
    while let Some(before) = cameby.get(at).filter(|_| at != start) {
        path.push(before.clone());
        at = before;
    }
    path.reverse();
    path
}
