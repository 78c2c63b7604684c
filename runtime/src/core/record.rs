//! What the value of a key says of other keys, so that any process can follow who waits for whom (rule P38).
//!
//! `group`: the other keys of its call, created at the same revision. `waits`: the waiting keys its holder's task depends on.
//! `while`: the keys that have to be there for that: as they wait, readers cannot join others of their process (rule P37), whose
//! tasks they depend on then. All of it stands in the holder record, beside what is there for people. Only who writes a record
//! that is a JSON object takes part; any other value says nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::core::queue::contends;
use crate::core::request::{Key, Kv, Revision};

/// A key in one incarnation: keys are used again (rule P14).
pub(crate) type Incarnation = (Key, Revision);

/// Bytes of other keys in one value: what has more is not followed by others, and waits as long as it would without.
const ROOM: usize = 4096;

/// What a value says of other keys.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) group: Vec<Key>,
    pub(crate) waits: Vec<Incarnation>,
    pub(crate) provided: Vec<Incarnation>,
}

/// What a holder's task depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    /// Waiting keys.
    pub(crate) keys: BTreeSet<Incarnation>,
    /// As long as these are there.
    pub(crate) provided: BTreeSet<Incarnation>,
}

impl Waits {
    pub(crate) fn extend(&mut self, other: Self) {
        self.keys.extend(other.keys);
        self.provided.extend(other.provided);
    }
}

/// Of a key as it was read, which it is.
pub(crate) fn incarnation(kv: Kv) -> Incarnation {
    let key = String::from_utf8_lossy(&kv.key).into();
    (key, kv.create_revision)
}

/// The record of the key of this family in a group that has all these.
pub(crate) fn of_group(record: &Arc<[u8]>, family: &str, keys: &[Key]) -> Arc<[u8]> {
    let fits = keys.iter().map(|key| key.len()).sum::<usize>() <= ROOM;
    let is_other = |key: &&Key| fits && !contends(family, key.as_bytes());
    let others: Vec<&str> = keys.iter().filter(is_other).map(|key| &**key).collect();
    with(record, "group", !others.is_empty(), json!(others))
}

/// The record of a key whose holder's task depends on this.
pub(crate) fn waiting_for(record: &Arc<[u8]>, waits: &Waits) -> Arc<[u8]> {
    let size = |key: &Incarnation| key.0.len();
    let conditions: usize = waits.provided.iter().map(size).sum();
    let Some(mut room) = ROOM.checked_sub(conditions) else {
        return record.clone();
    };
    let fits = |key: &&Incarnation| {
        let fits = size(key) <= room;
        room = room.saturating_sub(size(key));
        fits
    };
    let text = |(key, created): &Incarnation| json!([&**key, created]);
    let keys: Vec<Value> = waits.keys.iter().take_while(fits).map(text).collect();
    let provided: Vec<Value> = waits.provided.iter().map(text).collect();
    let (waits, conditional) = (!keys.is_empty(), !keys.is_empty() && !provided.is_empty());
    let record = with(record, "waits", waits, json!(keys));
    with(&record, "while", conditional, json!(provided))
}

fn with(record: &Arc<[u8]>, field: &str, any: bool, value: Value) -> Arc<[u8]> {
    if !any {
        return record.clone(); // unread: most keys stand alone
    }
    let Ok(mut object) = serde_json::from_slice::<Map<String, Value>>(record) else {
        return record.clone();
    };
    object.insert(field.to_owned(), value);
    Value::Object(object).to_string().into_bytes().into()
}

/// Reads a value; what is not ours says nothing.
pub(crate) fn told(value: &[u8]) -> Told {
    let Ok(record) = serde_json::from_slice::<Value>(value) else {
        return Told::default();
    };
    let list = |field: &str| {
        let list = record.get(field).and_then(Value::as_array);
        list.into_iter().flatten()
    };
    let key = |value: &Value| value.as_str().map(Key::from);
    let incarnation = |pair: &Value| Some((key(pair.get(0)?)?, pair.get(1)?.as_i64()?));
    Told {
        group: list("group").filter_map(key).collect(),
        waits: list("waits").filter_map(incarnation).collect(),
        provided: list("while").filter_map(incarnation).collect(),
    }
}
