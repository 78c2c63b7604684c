//! Window: how many transactions of a kind are under way (rule P7).
//!
//! No number fits both a few calls and thousands of them: a few want to go at once, and many want full transactions, because
//! each costs etcd something of its own. So the next transaction goes once it would carry as much as travels, or is full. Where
//! one call comes after another each goes alone; where answers take longer, more waits for them, and more goes together.

/// Transactions of a kind that may be under way at a time, however full they are: etcd works on them one after another.
const MOST: usize = 16;

/// The transactions of one kind that are under way, and how many elements they carry.
#[derive(Debug, Default)]
pub struct Window {
    transactions: usize,
    elements: usize,
}

impl Window {
    /// Whether a transaction may be sent while so many elements wait for it; a full one has `full` of them.
    pub fn admits(&self, waiting: usize, full: usize) -> bool {
        self.transactions < MOST && waiting >= self.elements.min(full)
    }

    /// A transaction of so many elements is sent.
    pub fn sent(&mut self, elements: usize) {
        self.transactions += 1;
        self.elements += elements;
    }

    /// It was answered, or not.
    pub fn done(&mut self, elements: usize) {
        // It may be one that was under way when the window was reopened.
        self.transactions = self.transactions.saturating_sub(1);
        self.elements = self.elements.saturating_sub(elements);
    }

    /// What is under way may never be answered, and counts no more.
    pub fn reopen(&mut self) {
        *self = Self::default();
    }
}
