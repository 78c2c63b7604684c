//! Templates of a binary (`templates()`): the list has all lock sites, in every kind of item.

use etcd_locked::{LockError, LockKey, Template, assert_no_overlaps, etcd_locked, templates};
use etcd_locked_tests::elsewhere;

#[etcd_locked("listed/free/<id>", wait = "5s", ttl = "30s")]
async fn free(id: u64) -> Result<(), LockError> {
    Ok(())
}
const FREE: u32 = line!() - 4;

/// Never instantiated with any `T`, but still listed.
#[allow(dead_code)]
#[etcd_locked("listed/generic/<key>")]
async fn generic<T: LockKey, const N: usize>(key: T) -> Result<[T; N], LockError> {
    Err(LockError::ShuttingDown)
}

struct Shop<T>(T);

impl<T: LockKey> Shop<T> {
    #[etcd_locked("listed/method/<self.0>", on_held = "skip")]
    async fn method(&self) -> Result<(), LockError> {
        Ok(())
    }
}

trait Keeper {
    #[etcd_locked("listed/trait/<id>")]
    async fn keep(&self, id: u64) -> Result<(), LockError> {
        Ok(())
    }
}

impl Keeper for Shop<u8> {}

macro_rules! locked {
    ($($name:ident $template:literal;)*) => {$(
        #[etcd_locked($template)]
        async fn $name(id: u64) -> Result<(), LockError> {
            Ok(())
        }
    )*};
}

locked! {
    one "listed/macro/one/<id>";
    two "listed/macro/two/<id>";
}

/// Lock site inside a function, as in a user's test.
fn inside() {
    #[etcd_locked("listed/inside/<id>")]
    async fn nested(id: u64) -> Result<(), LockError> {
        Ok(())
    }
    drop(nested(1));
}

fn the(template: &str) -> &'static Template {
    let mut found = templates().filter(|site| site.template == template);
    let site = found.next().unwrap_or_else(|| {
        panic!("`{template}` is not listed: {:?}", templates().collect::<Vec<_>>())
    });
    assert_eq!(found.next(), None, "`{template}` is listed twice");
    site
}

#[test]
fn every_shape_is_listed_with_its_place() {
    drop((free(1), Shop(1).method(), Shop(1_u8).keep(1), one(1), two(1)));
    inside();
    for (template, function) in [
        ("listed/free/<id>", "free"),
        ("listed/generic/<key>", "generic"),
        ("listed/method/<self.0>", "method"),
        ("listed/trait/<id>", "keep"),
        ("listed/macro/one/<id>", "one"),
        ("listed/macro/two/<id>", "two"),
        ("listed/inside/<id>", "nested"),
    ] {
        let site = the(template);
        assert_eq!(site.function, format!("{}::{function}", module_path!()));
        assert!(site.file.ends_with("it/templates.rs"), "{site}");
    }
    let site = the("listed/free/<id>");
    assert_eq!(site.line, FREE);
    assert_eq!(
        site.to_string(),
        format!("{}:{FREE}: listed/free/<id> ({}::free)", file!(), module_path!())
    );
}

#[test]
fn options_are_listed_as_they_are_written() {
    assert_eq!(the("listed/free/<id>").options, r#"wait = "5s", ttl = "30s""#);
    assert_eq!(the("listed/method/<self.0>").options, r#"on_held = "skip""#);
    assert_eq!(the("listed/trait/<id>").options, "");
}

#[test]
fn sites_of_another_crate_are_listed() {
    assert_eq!(elsewhere::linked(), "elsewhere"); // links that crate without a call of its sites
    for (template, function) in [
        ("elsewhere/<id>", "etcd_locked_tests::elsewhere::function"),
        ("elsewhere/generic/<key>", "etcd_locked_tests::elsewhere::generic"),
    ] {
        let site = the(template);
        assert_eq!(site.function, function);
        assert!(site.file.ends_with("src/elsewhere.rs"), "{site}");
    }
}

/// The unit tests of `templates` show what overlaps. Here the message contains both kinds of mistakes, with their places.
#[test]
fn overlaps_and_differing_permits_are_reported_with_both_sites() {
    #[etcd_locked("overlapping/<id>", permits = 5)]
    async fn by_id(id: u64) -> Result<(), LockError> {
        Ok(())
    }
    #[etcd_locked("overlapping/<order>", permits = 8)]
    async fn by_order(order: u64) -> Result<(), LockError> {
        Ok(())
    }
    #[etcd_locked("overlapping/archive")]
    async fn archive() -> Result<(), LockError> {
        Ok(())
    }
    drop((by_id(1), by_order(1), archive()));

    let panic = std::panic::catch_unwind(assert_no_overlaps).expect_err("they overlap");
    let message = panic.downcast_ref::<String>().expect("a message");
    let [by_id, by_order, archive] =
        ["overlapping/<id>", "overlapping/<order>", "overlapping/archive"].map(the);
    for pair in [
        format!("  {by_id}\n  {archive}\n    both can be the same name"),
        format!("  {by_id}\n  {by_order}\n    `permits = 5` and `permits = 8`"),
    ] {
        assert!(message.contains(&pair), "{message}\nlacks\n{pair}");
    }
}
