//! Declared names (`lock_names!`): the names they lock, the text they show, and the values they may contain.

use std::borrow::Cow;

use etcd_locked::{LockError, LockKey, LockName, Locks, Name, current, etcd_locked, lock_names};

use crate::corner::Corner;
use crate::limit;

/// Newtype of the application.
#[derive(Clone, Copy, LockKey)]
pub(crate) struct AccountId(u64);

#[derive(LockKey)]
struct Sku<'a> {
    text: &'a str,
}

#[derive(LockKey)]
struct Id<T>(T);

#[derive(Clone, Copy, LockKey)]
enum Region {
    North,
    #[allow(non_camel_case_types)]
    r#south_east = 7,
}

lock_names! {
    /// Serialises every change to one order.
    #[derive(Clone, Copy, PartialEq)]
    pub(crate) Order = "orders/<id: u64>";
    pub(crate) Pair = "pairs/<one: AccountId>/with/<other: &AccountId>";
    Nightly = "jobs/nightly";
    File = "files/v<version: u8>.x/<name: &str>/<dir: Cow<str>>/<root: &'static str>";
    Keyword = "keywords/<r#type: char>";
    #[cfg(any())]
    Absent = "absent/<x: NoSuchType>";
    #[cfg(not(any()))]
    Present = "present";
    #[expect(dead_code)]
    #[deprecated = "but it compiles"]
    Old = "old/<id: u8>";
}

fn text(name: impl LockName) -> String {
    name.lock_name().text().expect("a good name").to_owned()
}

#[test]
fn a_declared_name_is_its_template_with_the_fields_filled_in() {
    let (order, one, other) = (Order { id: 42 }, AccountId(1), AccountId(2));
    let copy = order;
    assert!(order == copy, "attributes are passed on");
    assert_eq!(text(order), "orders/42");
    assert_eq!(text(Pair { one, other: &other }), "pairs/1/with/2");
    assert_eq!(text(Nightly), "jobs/nightly");
    let file = File { version: 3, name: "a/b", dir: Cow::Borrowed("ü"), root: "r" };
    assert_eq!(text(&file), "files/v3.x/a%2Fb/%C3%BC/r");
    assert_eq!(text(Keyword { r#type: 'c' }), "keywords/c");
    assert_eq!(text(Present), "present");
    let empty = File { name: "", ..file };
    assert_eq!(empty.lock_name().text(), None);
    lock_names! { Local = "locals/<id: u8>"; }
    assert_eq!(text(Local { id: 1 }), "locals/1");
    assert_eq!(text(inside_a_facade::Facade { key: inside_a_facade::Key(1) }), "facades/1");
}

#[test]
fn only_the_template_is_shown() {
    assert_eq!(File::TEMPLATE, "files/v<version>.x/<name>/<dir>/<root>");
    assert_eq!(format!("{:?}", Order { id: 42 }), "orders/<id>");
    let name = Order { id: 42 }.lock_name();
    assert_eq!(name.template(), Some("orders/<id>"));
    assert_eq!(name.to_string(), "orders/<id>");
    let mut listed = etcd_locked::templates().map(|site| (site.template, site.function));
    assert!(listed.any(|it| it == ("orders/<id: u64>", concat!(module_path!(), "::Order"))));
}

#[test]
fn derived_keys_write_what_they_are() {
    let id = uuid::Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
    let keys: [(&dyn LockKey, Option<&str>); 7] = [
        (&AccountId(5), Some("5")),
        (&Sku { text: "a b" }, Some("a%20b")),
        (&Sku { text: "" }, None),
        (&Id(Id(7_u8)), Some("7")),
        (&Region::North, Some("North")),
        (&Region::r#south_east, Some("south_east")),
        (&id, Some("01234567-89ab-cdef-0123-456789abcdef")),
    ];
    for (key, written) in keys {
        let name = etcd_locked::__private::name("<x>", &[key]);
        assert_eq!(name.text(), written);
    }
}

mod inside_a_facade {
    //! A facade that re-exports the runtime under another name, and wraps its macro.
    pub(super) use ::etcd_locked as locking;

    #[derive(locking::LockKey)]
    #[lock_key(crate = crate::declared::inside_a_facade::locking)]
    pub(super) struct Key(pub(super) u8);

    macro_rules! names {
        ($($name:ident $template:literal)*) => {
            locking::lock_names! { $(pub(super) $name = $template;)* }
        };
    }

    names! { Facade "facades/<key: Key>" }
}

async fn name() -> Result<Name, LockError> {
    Ok(current().expect("inside").name().clone())
}

#[etcd_locked(Order { id }, locks = locks, wait = "5s")]
async fn declared(locks: &Locks, id: u64) -> Result<Name, LockError> {
    name().await
}

#[etcd_locked(Nightly, locks = locks)]
async fn unit_like(locks: &Locks) -> Result<Name, LockError> {
    name().await
}

#[etcd_locked(File { version: 1, name: name.trim(), dir: dir.into(), root: "/" }, locks = locks)]
async fn borrowed(locks: &Locks, name: String, dir: &str) -> Result<(String, Name), LockError> {
    Ok((name, self::name().await?))
}

#[etcd_locked(format!("orders/{id}"), locks = locks)]
async fn formatted(locks: &Locks, id: u64) -> Result<Name, LockError> {
    name().await
}

/// An argument may have the name of an option.
#[etcd_locked(wait, locks = locks)]
async fn argument_like_an_option(locks: &Locks, wait: &str) -> Result<Name, LockError> {
    name().await
}

#[etcd_locked(key?, locks = locks)]
async fn may_fail(locks: &Locks, key: Result<Name, LockError>) -> Result<Name, LockError> {
    name().await
}

struct Shop {
    locks: Locks,
    name: Name,
}

impl Shop {
    #[etcd_locked(&self.name, locks = &self.locks)]
    async fn method(&self) -> Result<Name, LockError> {
        name().await
    }
}

#[limit::test]
async fn any_name_can_be_locked() {
    let (_, [locks]) = Corner::with_engines().await;
    let text = |name: Name| name.text().expect("a good name").to_owned();
    assert_eq!(text(declared(&locks, 1).await.unwrap()), "orders/1");
    assert_eq!(text(unit_like(&locks).await.unwrap()), "jobs/nightly");
    let (kept, name) = borrowed(&locks, " n ".to_owned(), "d").await.unwrap();
    assert_eq!((kept.as_str(), text(name).as_str()), (" n ", "files/v1.x/n/d/%2F"));
    let name = formatted(&locks, 3).await.unwrap();
    assert_eq!((name.template(), text(name).as_str()), (None, "orders/3"));
    assert_eq!(text(argument_like_an_option(&locks, "b").await.unwrap()), "b");
    assert_eq!(text(may_fail(&locks, Ok("c".lock_name())).await.unwrap()), "c");
    let error = may_fail(&locks, Err(LockError::ShuttingDown)).await.unwrap_err();
    assert_matches!(error, LockError::ShuttingDown);
    let shop = Shop { name: Nightly.lock_name(), locks };
    assert_eq!(text(shop.method().await.unwrap()), "jobs/nightly");
}
