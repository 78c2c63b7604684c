//! Lock names of the shop, declared once, so that a handler that misspells one does not compile.

etcd_locked::lock_names! {
    /// Order, which only one request at a time changes, across all processes.
    pub(crate) Order = "orders/<id: u64>";
    /// Stock of an article.
    pub(crate) Shelf = "shelves/<sku: &str>";
}
