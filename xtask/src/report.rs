//! Table of the demo's rounds: pieces sold and left, locks taken, waits.

use std::fmt;
use std::time::Duration;

/// One round: sales and stock as the store has them, locks and waits as the services have counted them.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) title: &'static str,
    /// Entries in the book of sales.
    pub(crate) sold: usize,
    /// Pieces on the shelf at the start.
    pub(crate) stock: usize,
    /// Pieces on the shelf at the end.
    pub(crate) left: usize,
    pub(crate) locks_taken: u64,
    /// Waits for the lock, ascending.
    pub(crate) waits: Vec<Duration>,
}

impl Round {
    pub(crate) fn oversold(&self) -> usize {
        self.sold.saturating_sub(self.stock)
    }

    /// Returns the wait that `percent` % of the calls did not exceed.
    fn wait(&self, percent: usize) -> Option<Duration> {
        let rank = (self.waits.len() * percent).div_ceil(100);
        self.waits.get(rank.checked_sub(1)?).copied()
    }
}

/// Table with one line for each round.
#[derive(Debug)]
pub(crate) struct Table<'a>(pub(crate) &'a [Round]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |cells: [String; 8]| {
            let [title, sold, stock, left, oversold, locks, p50, p99] = cells;
            writeln!(
                out,
                "{title:<18}{sold:>6}{stock:>7}{left:>7}{oversold:>10}{locks:>13}{p50:>12}{p99:>12}"
            )
        };
        row(["", "sold", "stock", "left", "oversold", "locks taken", "wait p50", "wait p99"]
            .map(str::to_owned))?;
        for round in self.0 {
            let wait = |percent| {
                round
                    .wait(percent)
                    .map_or("-".to_owned(), |wait| format!("{:.1} ms", wait.as_secs_f64() * 1e3))
            };
            row([
                round.title.to_owned(),
                round.sold.to_string(),
                round.stock.to_string(),
                round.left.to_string(),
                round.oversold().to_string(),
                round.locks_taken.to_string(),
                wait(50),
                wait(99),
            ])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Round;

    fn round(waits: impl Iterator<Item = u64>) -> Round {
        let waits = waits.map(Duration::from_millis).collect();
        Round { title: "", sold: 41, stock: 40, left: 0, locks_taken: 0, waits }
    }

    #[test]
    fn percentile_is_one_of_the_waits() {
        let hundred = round(1..=100);
        assert_eq!(hundred.wait(50), Some(Duration::from_millis(50)));
        assert_eq!(hundred.wait(99), Some(Duration::from_millis(99)));
        assert_eq!(round(7..=7).wait(99), Some(Duration::from_millis(7)));
        assert_eq!(round(0..0).wait(50), None);
    }

    #[test]
    fn oversold_counts_sales_beyond_the_stock() {
        assert_eq!(round(0..0).oversold(), 1);
    }
}
