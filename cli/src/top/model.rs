//! Model of `top`: takes rows and keys, and returns what to show and what to do.

use std::borrow::Borrow;
use std::cmp::Ordering;

use ratatui::crossterm::event::KeyCode;

use crate::kick::Target;
use crate::row::Row;

/// Contender of the inspected name.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Place {
    pub(super) cells: [String; 4],
    pub(super) target: Target,
    /// True if it is known to hold the name.
    pub(super) holds: bool,
}

impl Place {
    pub(super) fn process(&self) -> &str {
        &self.cells[1]
    }
}

#[derive(Debug)]
pub(super) enum Seen {
    Names(Vec<Row>),
    /// Contenders of the inspected name.
    Contenders(Vec<Place>),
}

type Order = fn(&Row, &Row) -> Ordering;

/// Orders in which rows can be sorted.
const SORTS: [(&str, Order); 4] = [
    ("waiters", |one, other| (other.waiting, other.longest).cmp(&(one.waiting, one.longest))),
    ("hold time", |one, other| other.held.cmp(&one.held)),
    ("contenders gone", |one, other| {
        other.gone.unwrap_or(-1.0).total_cmp(&one.gone.unwrap_or(-1.0))
    }),
    ("name", |one, other| one.name.cmp(&other.name)),
];

const PAGE: usize = 10;

/// Limit of processes that a text names.
const NAMED: usize = 3;

/// Effect of a key, which the terminal carries out.
#[derive(Debug, PartialEq)]
pub(super) enum Effect {
    Nothing,
    Quit,
    /// Read the new view from etcd at once.
    Read,
    /// Take the lock away from these contenders.
    Kick(Vec<Place>),
}

/// Mode, which decides what keys mean.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Mode {
    #[default]
    Table,
    /// The user types the filter.
    Filter,
    /// The contenders of the selected name are shown.
    Name,
    /// The user is asked for confirmation before the lock of the selected name is taken away.
    Asks,
}

/// Everything that `top` shows.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) rows: Vec<Row>,
    pub(super) mode: Mode,
    /// Index in `SORTS`.
    sort: usize,
    pub(super) filter: String,
    selected: Option<String>,
    /// Contenders of the inspected name; `None` while they are being read.
    pub(super) places: Option<Vec<Place>>,
    /// Index of the first contender that is shown.
    pub(super) first: usize,
    /// Message about what has just happened.
    pub(super) note: String,
    /// Failure because of which the shown data is old; `None` after a successful read.
    pub(super) failure: Option<String>,
    /// True while a kick is in progress.
    pub(super) kicks: bool,
}

impl Model {
    /// Takes a result from etcd. A selected name stays selected while it exists. Contenders do not change while the user is asked
    /// about them.
    pub(super) fn update(&mut self, seen: Seen) {
        self.failure = None;
        match seen {
            Seen::Names(rows) => {
                self.rows = rows;
                self.rows.sort_by(SORTS[self.sort].1);
            }
            Seen::Contenders(_) if self.mode == Mode::Asks => {}
            Seen::Contenders(places) => {
                self.first = self.first.min(places.len().saturating_sub(1));
                self.places = Some(places);
            }
        }
    }

    pub(super) fn sorted_by(&self) -> &'static str {
        SORTS[self.sort].0
    }

    /// Takes the outcome of a kick.
    pub(super) fn kicked(&mut self, said: String) {
        self.kicks = false;
        self.note = said;
    }

    /// Returns the rows that match the filter, and the index of the selected one among them.
    fn shown(&self) -> (Vec<&Row>, Option<usize>) {
        let passes = |row: &&Row| row.name.contains(&self.filter);
        let shown: Vec<_> = self.rows.iter().filter(passes).collect();
        let at = shown.iter().position(|row| Some(&row.name) == self.selected.as_ref());
        let first = (!shown.is_empty()).then_some(0);
        (shown, at.or(first))
    }

    /// Returns the shown rows that fit into `lines`, including the selected one, and that one's index.
    pub(super) fn window(&self, lines: usize) -> (Vec<&Row>, Option<usize>) {
        let (shown, at) = self.shown();
        let first = at.unwrap_or(0).saturating_sub(lines.saturating_sub(1));
        let rows = shown.into_iter().skip(first).take(lines).collect();
        (rows, at.map(|at| at - first))
    }

    /// Returns the inspected name, if there is one.
    pub(super) fn name(&self) -> Option<&str> {
        match self.mode {
            Mode::Name | Mode::Asks => self.selected.as_deref(),
            Mode::Table | Mode::Filter => None,
        }
    }

    pub(super) fn press(&mut self, key: KeyCode) -> Effect {
        self.note.clear();
        match self.mode {
            Mode::Table => self.in_table(key),
            Mode::Filter => self.in_filter(key),
            Mode::Name => self.in_name(key),
            Mode::Asks => self.in_question(key),
        }
    }

    fn in_table(&mut self, key: KeyCode) -> Effect {
        match key {
            KeyCode::Char('q') => return Effect::Quit,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('s') => {
                self.sort = (self.sort + 1) % SORTS.len();
                self.rows.sort_by(SORTS[self.sort].1);
            }
            _ => {
                let (shown, Some(at)) = self.shown() else {
                    return Effect::Nothing;
                };
                let looks = matches!(key, KeyCode::Enter | KeyCode::Char('k'));
                // The name that the user sees marked becomes the selected one.
                if let Some(to) = moved(key, at).or(looks.then_some(at)) {
                    let to = to.min(shown.len() - 1);
                    self.selected = Some(shown[to].name.clone());
                }
                if looks {
                    (self.places, self.first, self.mode) = (None, 0, Mode::Name);
                    return Effect::Read;
                }
            }
        }
        Effect::Nothing
    }

    fn in_filter(&mut self, key: KeyCode) -> Effect {
        match key {
            KeyCode::Char(char) => self.filter.push(char),
            KeyCode::Backspace => _ = self.filter.pop(),
            KeyCode::Enter => self.mode = Mode::Table,
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::Table;
            }
            _ => {}
        }
        Effect::Nothing
    }

    fn in_name(&mut self, key: KeyCode) -> Effect {
        match key {
            KeyCode::Char('q') => return Effect::Quit,
            KeyCode::Esc | KeyCode::Backspace => {
                self.mode = Mode::Table;
                return Effect::Read;
            }
            KeyCode::Char('k') => match self.why_not_kick() {
                Some(why) => why.clone_into(&mut self.note),
                None => self.mode = Mode::Asks,
            },
            _ => {
                let last = self.places.as_ref().map_or(0, Vec::len).saturating_sub(1);
                self.first = moved(key, self.first).unwrap_or(self.first).min(last);
            }
        }
        Effect::Nothing
    }

    fn why_not_kick(&self) -> Option<&'static str> {
        match self.places {
            _ if self.kicks => Some("the last kick has not been answered"),
            None => Some("who holds it is being read"),
            Some(_) if self.holders().next().is_none() => Some("no process is known to hold it"),
            Some(_) => None,
        }
    }

    fn in_question(&mut self, key: KeyCode) -> Effect {
        self.mode = Mode::Name;
        if let KeyCode::Char('y' | 'Y') = key {
            self.kicks = true;
            return Effect::Kick(self.holders().cloned().collect());
        }
        "nothing was done".clone_into(&mut self.note);
        Effect::Nothing
    }

    /// Returns the contenders that a kick takes the lock from.
    pub(super) fn holders(&self) -> impl Iterator<Item = &Place> {
        let places = self.places.iter().flatten();
        places.filter(|place| place.holds)
    }
}

/// Returns the line to which a key moves; `None` if it does not move.
fn moved(key: KeyCode, at: usize) -> Option<usize> {
    Some(match key {
        KeyCode::Up => at.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => at + 1,
        KeyCode::PageUp => at.saturating_sub(PAGE),
        KeyCode::PageDown => at + PAGE,
        _ => return None,
    })
}

/// Lists the first of these processes, and the number of others.
pub(super) fn few(processes: &[impl Borrow<str>]) -> String {
    let (first, more) = processes.split_at(processes.len().min(NAMED));
    match more.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}
