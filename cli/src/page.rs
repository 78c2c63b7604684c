//! Page of rows: a table on a terminal, a hundred rows at a time; in a pipe fields between tabs, each row as it comes.

use std::io;

use crate::output::{Shown, on_terminal, print, print_fields};

/// How many rows are laid out together, on a terminal.
const ROWS: usize = 100;
/// How wide a column is at most. A longer field goes on to its right.
const WIDEST: usize = 60;

/// Rows under way to the standard output.
#[derive(Debug)]
pub(crate) struct Page<const N: usize> {
    rows: Vec<[String; N]>,
    /// How wide columns were so far, so that the next rows stand below.
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
        // Escaped before it is measured.
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
