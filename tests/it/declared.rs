//! Declared names (`lock_names!`): the names they lock, the text they show, and the values they may contain.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use etcd_locked::{LockError, LockKey, LockName, Locks, Name, current, etcd_locked, lock_names};

use crate::corner::Corner;
use crate::limit;

/// A newtype of the application.
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
    assert_eq!(text(Order { id: 42 }), "orders/42");
    let (one, other) = (AccountId(1), AccountId(2));
    assert_eq!(text(Pair { one, other: &other }), "pairs/1/with/2");
    assert_eq!(text(Nightly), "jobs/nightly");
    let file = File { version: 3, name: "a/b", dir: Cow::Borrowed("ü"), root: "r" };
    assert_eq!(text(&file), "files/v3.x/a%2Fb/%C3%BC/r");
    assert_eq!(text(Keyword { r#type: 'c' }), "keywords/c");
    assert_eq!(text(Present), "present");
    let empty = File { name: "", ..file };
    assert_eq!(empty.lock_name().text(), None);
}

#[test]
fn only_the_template_is_shown() {
    assert_eq!(Order::TEMPLATE, "orders/<id>");
    assert_eq!(File::TEMPLATE, "files/v<version>.x/<name>/<dir>/<root>");
    assert_eq!(format!("{:?}", Order { id: 42 }), "orders/<id>");
    let name = Order { id: 42 }.lock_name();
    assert_eq!(name.template(), Some("orders/<id>"));
    assert_eq!(name.to_string(), "orders/<id>");
    let order = Order { id: 1 };
    let copy = order;
    assert!(order == copy, "attributes are passed on");
}

#[test]
fn derived_keys_write_what_they_are() {
    let write = |key: &dyn LockKey| {
        let name = etcd_locked::__private::name("<x>", &[key]);
        name.text().map(str::to_owned)
    };
    assert_eq!(write(&AccountId(5)).as_deref(), Some("5"));
    assert_eq!(write(&Sku { text: "a b" }).as_deref(), Some("a%20b"));
    assert_eq!(write(&Id(Sku { text: "x" })).as_deref(), Some("x"));
    assert_eq!(write(&Id(Id(7_u8))).as_deref(), Some("7"));
    assert_eq!(write(&Region::North).as_deref(), Some("North"));
    assert_eq!(write(&Region::r#south_east).as_deref(), Some("south_east"));
    assert_eq!(write(&Sku { text: "" }), None);
}

#[test]
fn a_uuid_may_stand_in_a_name() {
    let id = uuid::Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
    let name = etcd_locked::__private::name("orders/<id>", &[&id]);
    assert_eq!(name.text(), Some("orders/01234567-89ab-cdef-0123-456789abcdef"));
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

#[test]
fn a_facade_can_reexport_everything() {
    use inside_a_facade::{Facade, Key};
    assert_eq!(text(Facade { key: Key(1) }), "facades/1");
}

#[test]
fn a_name_can_be_declared_inside_a_function() {
    lock_names! { Local = "locals/<id: u8>"; }
    assert_eq!(text(Local { id: 1 }), "locals/1");
}

/// The number of evaluations of the name of `expression`.
static EVALUATED: AtomicUsize = AtomicUsize::new(0);

fn counted(id: u64) -> Order {
    EVALUATED.fetch_add(1, Ordering::SeqCst);
    Order { id }
}

const CONSTANT: &str = "constants/one";

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

#[etcd_locked(counted(id), locks = locks)]
async fn expression(locks: &Locks, id: u64) -> Result<Name, LockError> {
    name().await
}

#[etcd_locked(format!("orders/{id}"), locks = locks)]
async fn formatted(locks: &Locks, id: u64) -> Result<Name, LockError> {
    name().await
}

#[etcd_locked(CONSTANT, locks = locks)]
async fn constant(locks: &Locks) -> Result<Name, LockError> {
    name().await
}

/// An argument may have the name of a flag or of an option.
#[etcd_locked((shared), locks = locks)]
async fn argument_like_a_flag(locks: &Locks, shared: &str) -> Result<Name, LockError> {
    name().await
}

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
    assert_eq!(text(expression(&locks, 2).await.unwrap()), "orders/2");
    assert_eq!(EVALUATED.load(Ordering::SeqCst), 1, "evaluated once");
    let name = formatted(&locks, 3).await.unwrap();
    assert_eq!((name.template(), text(name).as_str()), (None, "orders/3"));
    assert_eq!(text(constant(&locks).await.unwrap()), "constants/one");
    assert_eq!(text(argument_like_a_flag(&locks, "a").await.unwrap()), "a");
    assert_eq!(text(argument_like_an_option(&locks, "b").await.unwrap()), "b");
    assert_eq!(text(may_fail(&locks, Ok("c".lock_name())).await.unwrap()), "c");
    let error = may_fail(&locks, Err(LockError::ShuttingDown)).await.unwrap_err();
    assert_matches!(error, LockError::ShuttingDown);
    let refused = formatted(&locks, 4);
    let held = locks.lock(Order { id: 4 }).await.unwrap();
    drop(refused);
    held.release().await.unwrap();
    let shop = Shop { name: Nightly.lock_name(), locks };
    assert_eq!(text(shop.method().await.unwrap()), "jobs/nightly");
}

fn is_send<F: Future + Send>(future: &F) -> usize {
    size_of_val(future)
}

/// The same body under a template and under a declared name.
#[etcd_locked("orders/<id>", locks = locks)]
async fn templated(locks: &Locks, id: u64) -> Result<Name, LockError> {
    name().await
}

#[limit::test]
async fn a_future_is_no_larger_for_a_declared_name() {
    let locks = Corner::new().await.locks().await;
    let template = is_send(&templated(&locks, 1));
    assert!(is_send(&declared(&locks, 1)) <= template);
    is_send(&borrowed(&locks, String::new(), ""));
}

#[test]
fn declared_names_are_listed() {
    let listed: HashSet<_> = etcd_locked::templates()
        .map(|site| (site.template, site.function.rsplit("::").next()))
        .collect();
    assert!(listed.contains(&("orders/<id: u64>", Some("Order"))), "{listed:?}");
    assert!(listed.contains(&("jobs/nightly", Some("Nightly"))));
    assert!(listed.contains(&("orders/<id>", Some("templated"))));
}
