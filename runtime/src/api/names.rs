//! Lock names as types: `lock_names!`.

/// Declares lock names, so that a misspelt one does not compile.
///
/// ```
/// # #[derive(etcd_locked::LockKey)] pub struct AccountId(u64);
/// etcd_locked::lock_names! {
///     /// Serialises every change to one order.
///     pub Order = "orders/<id: u64>";
///     /// The balance of an account. A transfer locks two: `Account { id: from }, Account { id: to }`.
///     pub Account = "accounts/<id: &AccountId>";
///     /// The nightly job, which one replica runs for all.
///     pub Nightly = "jobs/nightly";
/// }
///
/// # use etcd_locked::{LockError, etcd_locked};
/// #[etcd_locked(Order { id }, wait = "5s")]
/// async fn ship(id: u64) -> Result<(), LockError> {
///     Ok(())
/// }
///
/// #[etcd_locked(Nightly, wait = "none", on_held = "skip")]
/// async fn nightly() {}
/// # async fn by_hand() -> Result<(), LockError> {
///
/// let held = etcd_locked::lock(Order { id: 42 }).await?; // the same lock, by hand
/// # drop(held); Ok(()) }
/// # assert_eq!(Order::TEMPLATE, "orders/<id>");
/// ```
///
/// Each name is a small struct with one public field for each placeholder. It has a constant `TEMPLATE` (the template without the types),
/// implements [`LockName`](crate::LockName), and its `Debug` prints only the template. Attributes and docs are passed on; nothing else is
/// derived. `lock(Order { id })` returns a [`LockGuard<Order>`](crate::LockGuard), and `proof = order` binds an
/// [`&Locked<Order>`](crate::Locked). A field's type is a [`LockKey`](crate::LockKey). Prefer `<sku: &str>` to `<sku: String>`: an elided
/// lifetime becomes the struct's only lifetime.
///
/// # Names that overlap
///
/// Two names of one block do not compile if they can be the same key, or if one is a path prefix of the other. (In etcd, the keys of one
/// would lie among those of the other.) The macro looks only at the text: in some position, the segments of the two names must differ.
///
/// - Two literals differ if they are not equal.
/// - A literal and a placeholder differ if the text around the placeholder does not fit, or if its type, as it is spelled, cannot print
///   the literal: integers, `bool` and `char`. So `orders/<id: u64>` next to `orders/archive` compiles, and `orders/<id: &str>` does not.
/// - Two placeholders differ only if the literal text around them cannot coincide.
#[macro_export]
macro_rules! lock_names {
    ($($declarations:tt)*) => {
        $crate::__private::lock_names! { $crate; $($declarations)* }
    };
}
