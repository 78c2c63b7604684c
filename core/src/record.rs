//! Record: the part of a key's value that names the other keys of its group, for deadlock detection (rule P38).
//!
//! The value is the holder record, a JSON object that people read. A group's keys end it with one more field,
//! `"group":["<key>",…]`, always the last one, so that writing and reading it needs no JSON library. A value that does not end
//! that way names no group.

use std::sync::Arc;

use crate::ids::Key;

const FIELD: &str = ",\"group\":[\"";
const END: &str = "\"]}";
const BETWEEN: &str = "\",\"";

/// Bytes of other keys in one value. A group with longer names is not followed by a search.
const ROOM: usize = 4096;

/// The record of one key of a group that has all these keys.
pub fn of_group(record: &Arc<[u8]>, own: &Key, keys: &[Key]) -> Arc<[u8]> {
    let others: Vec<&str> = keys
        .iter()
        .filter(|key| *key != own)
        .map(|key| &**key)
        .collect();
    let plain = |key: &&str| !key.contains(['"', '\\']);
    let fits = others.iter().map(|key| key.len()).sum::<usize>() <= ROOM;
    let (Some(object), true) = (record.strip_suffix(b"}"), fits && others.iter().all(plain)) else {
        return record.clone();
    };
    if others.is_empty() {
        return record.clone();
    }
    let mut value = object.to_vec();
    value.extend_from_slice(FIELD.as_bytes());
    value.extend_from_slice(others.join(BETWEEN).as_bytes());
    value.extend_from_slice(END.as_bytes());
    value.into()
}

/// The other keys of the group that a value belongs to; none for a key that stands alone, or is not ours.
pub fn group(value: &[u8]) -> Vec<Key> {
    let Ok(text) = std::str::from_utf8(value) else {
        return Vec::new();
    };
    let field = text
        .strip_suffix(END)
        .and_then(|text| text.rsplit_once(FIELD));
    let keys = field.map(|(_, keys)| keys.split(BETWEEN));
    keys.into_iter().flatten().map(Key::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_reads_as_it_was_written() {
        let keys: Vec<Key> = ["l/a/1", "l/b/1", "l/a/c/1"].map(Key::from).to_vec();
        let record: Arc<[u8]> = (*b"{\"host\":\"x\"}").into();
        let value = of_group(&record, &keys[0], &keys);
        assert_eq!(group(&value), keys[1..]);
        assert!(group(&record).is_empty());
        assert_eq!(of_group(&record, &keys[0], &keys[..1]), record);
        let foreign: Arc<[u8]> = (*b"held by me").into();
        assert_eq!(of_group(&foreign, &keys[0], &keys), foreign);
    }
}
