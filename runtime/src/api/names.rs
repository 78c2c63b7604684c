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
///     /// What one replica does for all.
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
/// Each name is a small struct with one public field for each placeholder, a constant `TEMPLATE` (the template without the
/// types), [`LockName`](crate::LockName), and a `Debug` that prints the template only. Attributes and docs are passed on;
/// nothing else is derived. `lock(Order { id })` gives a [`LockGuard<Order>`](crate::LockGuard), and `proof = order` an
/// [`&Locked<Order>`](crate::Locked). A field's type is a [`LockKey`](crate::LockKey); prefer `<sku: &str>` to `<sku: String>`: a
/// lifetime that is left out becomes the struct's one lifetime.
///
/// # Names that get into each other's way
///
/// Two names of one block that can be the same key do not compile, nor two of which one is a path-prefix of the other (in
/// etcd the keys of one would lie among those of the other). The macro decides on the text alone: at some place the
/// segments of the two names must differ.
///
/// - Two literals differ if they are not equal.
/// - A literal and a placeholder differ if the text around the placeholder does not fit, or if its type, as it is spelled,
///   cannot print the literal: integers, `bool` and `char`. So `orders/<id: u64>` next to `orders/archive` compiles, and
///   `orders/<id: &str>` does not.
/// - Two placeholders differ only if the literal text around them cannot coincide.
#[macro_export]
macro_rules! lock_names {
    ($($declarations:tt)*) => {
        $crate::__private::lock_names! { $crate; $($declarations)* }
    };
}
