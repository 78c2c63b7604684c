//! Page of rows: a table on a terminal, a hundred rows at a time; in a pipe fields between tabs, each row as it comes.

use std::io::{self, IsTerminal, Write};

use comfy_table::{ContentArrangement, Table, presets};

/// How many rows are laid out together, on a terminal.
const ROWS: usize = 100;

const GAP: u16 = 2;

/// Rows under way to the standard output.
#[derive(Debug)]
pub(crate) struct Page {
    /// Empty once they are printed.
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// How wide columns were so far, so that the next rows stand below.
    widths: Vec<usize>,
    terminal: bool,
}

impl Page {
    pub(crate) fn new<const N: usize>(heads: [&'static str; N]) -> Self {
        Self {
            widths: heads.map(|head| head.chars().count()).to_vec(),
            heads: heads.to_vec(),
            rows: Vec::new(),
            terminal: io::stdout().is_terminal(),
        }
    }

    pub(crate) fn row<const N: usize>(&mut self, row: [String; N]) -> io::Result<()> {
        if !self.terminal {
            return writeln!(io::stdout(), "{}", row.join("\t"));
        }
        self.rows.push(row.to_vec());
        match self.rows.len() < ROWS {
            true => Ok(()),
            false => self.flush(),
        }
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        for row in &self.rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
        let heads = std::mem::take(&mut self.heads);
        if !heads.is_empty() {
            table.set_header(heads);
        }
        table.add_rows(self.rows.drain(..));
        let widths = self.widths.clone();
        for (column, width) in table.column_iter_mut().zip(widths) {
            // The gap behind a column is a part of its width.
            let width = u16::try_from(width.min(60)).unwrap_or(u16::MAX) + GAP;
            column.set_padding((0, GAP));
            column.set_constraint(comfy_table::ColumnConstraint::LowerBoundary(
                comfy_table::Width::Fixed(width),
            ));
        }
        writeln!(io::stdout(), "{}", table.trim_fmt())
    }
}
