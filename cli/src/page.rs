//! Page of rows: a table on a terminal, a hundred rows at a time; in a pipe, fields separated by tabs, each row at once.

use std::io;

use crate::output::{Shown, on_terminal, print, print_fields};

/// Rows that are laid out together on a terminal.
const ROWS: usize = 100;
/// Largest width of a column. A longer field extends to the right.
const WIDEST: usize = 60;

/// Rows that are about to be printed.
#[derive(Debug)]
pub(crate) struct Page<const N: usize> {
    rows: Vec<[String; N]>,
    /// Widths of the columns so far, so that later rows align with earlier ones.
    widths: [usize; N],
    heads: [&'static str; N],
}

impl<const N: usize> Page<N> {
    pub(crate) fn new(heads: [&'static str; N]) -> Self {
        Self { rows: Vec::new(), widths: [0; N], heads }
    }

    pub(crate) fn row(&mut self, row: [String; N]) -> io::Result<()> {
        if !on_terminal() {
            return print_fields(&row);
        }
        if self.widths == [0; N] && self.rows.is_empty() {
            self.rows.push(self.heads.map(str::to_owned));
        }
        // Escaped first, because that changes the width.
        self.rows.push(row.map(|field| Shown(&field).to_string()));
        if self.rows.len() < ROWS { Ok(()) } else { self.flush() }
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        for row in &self.rows {
            for (width, field) in self.widths.iter_mut().zip(row) {
                *width = field.chars().count().min(WIDEST).max(*width);
            }
        }
        let widths = self.widths;
        self.rows.drain(..).try_for_each(|row| {
            let fields = row.iter().zip(widths).map(|(field, width)| format!("{field:width$}  "));
            print(fields.collect::<String>().trim_end())
        })
    }
}
