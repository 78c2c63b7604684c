//! Records: the value of a key is its call's record, and names the other keys of its group (rule P38).

use etcd_locked_core::Wait;

use crate::town::Town;

fn value(town: &Town, key: &str) -> String {
    let kv = town.store.kv(key.as_bytes()).expect("a key");
    String::from_utf8_lossy(&kv.value).into_owned()
}

#[test]
fn value_of_a_single_key_is_the_record() {
    let mut town = Town::of(1);
    town.take(0, 1, &["a"]);
    assert_eq!(value(&town, "locks/a/a1"), "{\"call\":1}");
}

#[test]
fn value_of_a_key_names_the_other_keys_of_its_group() {
    let mut town = Town::of(1);
    town.take(0, 1, &["a", "b", "c"]);
    let expected = "{\"call\":1,\"group\":[\"locks/a/a1\",\"locks/c/a1\"]}";
    assert_eq!(value(&town, "locks/b/a1"), expected);
}

#[test]
fn wait_of_a_holder_leaves_its_records_as_they_are() {
    let mut town = Town::of(2);
    town.take(0, 1, &["a"]);
    town.take(1, 2, &["b"]);
    let before = town.store.kv(b"locks/a/a1").cloned();
    town.ask_for(0, 3, &["b"], &[1], Wait::Forever);
    town.until(|town| !town.edges().is_empty());
    assert_eq!(town.store.kv(b"locks/a/a1"), before.as_ref());
}
