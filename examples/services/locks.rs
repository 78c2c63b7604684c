//! Lock names of the shop, declared once, so that a handler that misspells one does not compile.

etcd_locked::lock_names! {
    /// An order, which one request at a time changes, over all processes.
    pub(crate) Order = "orders/<id: u64>";
    /// The stock of an article.
    pub(crate) Shelf = "shelves/<sku: &str>";
}
