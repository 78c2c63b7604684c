//! The locks of the shop, declared once: a handler that misspells one does not compile.

etcd_locked::lock_names! {
    /// An order: one request at a time changes it, in whichever process.
    pub(crate) Order = "orders/<id: u64>";
    /// What there is of an article.
    pub(crate) Shelf = "shelves/<sku: &str>";
}
