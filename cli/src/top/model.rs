//! Model of `top`: rows and keys go in, what to show and what to do come out.

use std::cmp::Reverse;
use std::time::Duration;

use crate::kick::Target;

/// A name that is locked.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) mode: &'static str,
    /// The first holder, and how many more.
    pub(super) holder: String,
    pub(super) held: Option<Duration>,
    pub(super) waiting: usize,
    pub(super) longest: Option<Duration>,
    /// Keys that left the name a second. `None`: not known.
    pub(super) gone: Option<f64>,
}

/// A contender of the name that is looked into.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Place {
    pub(super) standing: &'static str,
    pub(super) process: String,
    pub(super) mode: &'static str,
    pub(super) time: String,
    pub(super) target: Target,
    /// It is known to hold the name.
    pub(super) holds: bool,
}

/// What the rows are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    Waiters,
    Held,
    Gone,
    Name,
}

impl Sort {
    fn next(self) -> Self {
        match self {
            Self::Waiters => Self::Held,
            Self::Held => Self::Gone,
            Self::Gone => Self::Name,
            Self::Name => Self::Waiters,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Waiters => "waiters",
            Self::Held => "hold time",
            Self::Gone => "contenders gone",
            Self::Name => "name",
        }
    }
}

/// A key that the user has pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Press {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Up,
    Down,
    PageUp,
    PageDown,
}

/// Lines that a page key goes.
const PAGE: usize = 10;

/// How many processes are named where there may be many.
const NAMED: usize = 3;

/// What the terminal is to do after a key.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Effect {
    Nothing,
    Quit,
    /// Read the new view from etcd, at once.
    Read,
    /// Take the lock away from these contenders.
    Kick(Vec<Place>),
}

/// What keys mean now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Table,
    /// The user types the filter.
    Filter,
    /// The contenders of the selected name are shown.
    Name,
    /// The user is asked whether to take the lock of the selected name away.
    Asks,
}

/// All that `top` shows.
#[derive(Debug)]
pub(super) struct Model {
    rows: Vec<Row>,
    pub(super) mode: Mode,
    pub(super) sort: Sort,
    pub(super) filter: String,
    selected: Option<String>,
    /// The contenders of the name that is looked into. `None`: they are being read.
    pub(super) places: Option<Vec<Place>>,
    /// The first contender that is shown.
    pub(super) first: usize,
    /// What has just happened.
    pub(super) note: String,
    /// Why what is shown is old; `None` after a read that was answered.
    pub(super) failure: Option<String>,
    /// A kick has not been answered.
    pub(super) kicks: bool,
}

impl Model {
    pub(super) fn new() -> Self {
        Self {
            rows: Vec::new(),
            mode: Mode::Table,
            sort: Sort::Waiters,
            filter: String::new(),
            selected: None,
            places: None,
            first: 0,
            note: String::new(),
            failure: None,
            kicks: false,
        }
    }

    /// Takes the names as they are now. The selected one stays selected while it is there.
    pub(super) fn update(&mut self, rows: Vec<Row>) {
        self.rows = rows;
        self.failure = None;
        self.put_in_order();
    }

    fn put_in_order(&mut self) {
        match self.sort {
            Sort::Waiters => self.rows.sort_by_key(|row| Reverse((row.waiting, row.longest))),
            Sort::Held => self.rows.sort_by_key(|row| Reverse(row.held)),
            Sort::Gone => {
                let of = |row: &Row| row.gone.unwrap_or(-1.0);
                self.rows.sort_by(|one, other| of(other).total_cmp(&of(one)));
            }
            Sort::Name => self.rows.sort_by(|one, other| one.name.cmp(&other.name)),
        }
    }

    /// Takes the contenders of the selected name as they are now. While the user is asked about them they stay as they were.
    pub(super) fn look(&mut self, places: Vec<Place>) {
        self.failure = None;
        if self.mode != Mode::Asks {
            self.first = self.first.min(places.len().saturating_sub(1));
            self.places = Some(places);
        }
    }

    /// Takes the failure of a read: what is shown stays, and is old until one is answered.
    pub(super) fn fail(&mut self, failure: String) {
        self.failure = Some(failure);
    }

    /// Takes what has become of a kick.
    pub(super) fn kicked(&mut self, said: String) {
        self.kicks = false;
        self.note = said;
    }

    /// The rows that the filter lets through.
    pub(super) fn shown(&self) -> Vec<&Row> {
        let passes = |row: &&Row| row.name.contains(&self.filter);
        self.rows.iter().filter(passes).collect()
    }

    /// The shown rows that fit on so many lines, the selected one among them, and where that one stands there.
    pub(super) fn window(&self, lines: usize) -> (Vec<&Row>, Option<usize>) {
        let shown = self.shown();
        let at = self.at_among(&shown);
        let first = at.unwrap_or(0).saturating_sub(lines.saturating_sub(1));
        let rows = shown.into_iter().skip(first).take(lines).collect();
        (rows, at.map(|at| at - first))
    }

    /// Where the selected row stands among those that are shown.
    pub(super) fn at(&self) -> Option<usize> {
        self.at_among(&self.shown())
    }

    fn at_among(&self, shown: &[&Row]) -> Option<usize> {
        let of_name = shown.iter().position(|row| Some(&row.name) == self.selected.as_ref());
        of_name.or((!shown.is_empty()).then_some(0))
    }

    /// The name that is looked into, if one is.
    pub(super) fn name(&self) -> Option<&str> {
        match self.mode {
            Mode::Name | Mode::Asks => self.selected.as_deref(),
            Mode::Table | Mode::Filter => None,
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.rows.iter().map(|row| row.waiting).sum()
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn press(&mut self, press: Press) -> Effect {
        self.note.clear();
        match self.mode {
            Mode::Table => self.in_table(press),
            Mode::Filter => self.in_filter(press),
            Mode::Name => self.in_name(press),
            Mode::Asks => self.in_question(press),
        }
    }

    fn in_table(&mut self, press: Press) -> Effect {
        match press {
            Press::Char('q') => return Effect::Quit,
            Press::Escape => self.filter.clear(),
            Press::Char('/') => self.mode = Mode::Filter,
            Press::Char('s') => {
                self.sort = self.sort.next();
                self.put_in_order();
            }
            _ if self.at().is_none() => {}
            Press::Up => self.select(self.at().unwrap_or(0).saturating_sub(1)),
            Press::Down | Press::Char('j') => self.select(self.at().unwrap_or(0) + 1),
            Press::PageUp => self.select(self.at().unwrap_or(0).saturating_sub(PAGE)),
            Press::PageDown => self.select(self.at().unwrap_or(0) + PAGE),
            Press::Enter | Press::Char('k') => {
                // What the user sees marked is what is meant from here on.
                self.select(self.at().unwrap_or(0));
                if self.selected.is_some() {
                    self.places = None;
                    self.first = 0;
                    self.mode = Mode::Name;
                    return Effect::Read;
                }
            }
            Press::Char(_) | Press::Backspace => {}
        }
        Effect::Nothing
    }

    fn select(&mut self, at: usize) {
        let shown = self.shown();
        let row = shown.get(at).or(shown.last());
        self.selected = row.map(|row| row.name.clone());
    }

    fn in_filter(&mut self, press: Press) -> Effect {
        match press {
            Press::Char(char) => self.filter.push(char),
            Press::Backspace => _ = self.filter.pop(),
            Press::Enter => self.mode = Mode::Table,
            Press::Escape => {
                self.filter.clear();
                self.mode = Mode::Table;
            }
            Press::Up | Press::Down | Press::PageUp | Press::PageDown => {}
        }
        Effect::Nothing
    }

    fn in_name(&mut self, press: Press) -> Effect {
        match press {
            Press::Char('q') => return Effect::Quit,
            Press::Escape | Press::Backspace => {
                self.mode = Mode::Table;
                return Effect::Read;
            }
            Press::Up => self.scroll(self.first.saturating_sub(1)),
            Press::Down | Press::Char('j') => self.scroll(self.first + 1),
            Press::PageUp => self.scroll(self.first.saturating_sub(PAGE)),
            Press::PageDown => self.scroll(self.first + PAGE),
            Press::Char('k') => match self.why_not_kick() {
                Some(why) => why.clone_into(&mut self.note),
                None => self.mode = Mode::Asks,
            },
            _ => {}
        }
        Effect::Nothing
    }

    fn scroll(&mut self, first: usize) {
        let last = self.places.as_ref().map_or(0, Vec::len).saturating_sub(1);
        self.first = first.min(last);
    }

    fn why_not_kick(&self) -> Option<&'static str> {
        if self.kicks {
            return Some("the last kick has not been answered");
        }
        if self.places.is_none() {
            return Some("who holds it is being read");
        }
        let holds = self.holders().next().is_some();
        (!holds).then_some("no process is known to hold it")
    }

    fn in_question(&mut self, press: Press) -> Effect {
        self.mode = Mode::Name;
        match press {
            Press::Char('y' | 'Y') => {
                self.kicks = true;
                Effect::Kick(self.holders().cloned().collect())
            }
            _ => {
                "nothing was done".clone_into(&mut self.note);
                Effect::Nothing
            }
        }
    }

    /// Those whom a kick hits.
    pub(super) fn holders(&self) -> impl Iterator<Item = &Place> {
        let places = self.places.iter().flatten();
        places.filter(|place| place.holds)
    }
}

/// The first of these processes, and how many more.
pub(super) fn few(processes: &[&str]) -> String {
    let (first, more) = processes.split_at(processes.len().min(NAMED));
    match more.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Names with so many waiters, and held for so many seconds.
    pub(in super::super) fn rows() -> Vec<Row> {
        let row = |name: &str, waiting, held, gone| Row {
            name: name.to_owned(),
            mode: "exclusive",
            holder: format!("shop web-1:{waiting}"),
            held: Some(Duration::from_secs(held)),
            waiting,
            longest: None,
            gone: Some(gone),
        };
        vec![
            row("accounts/3", 1, 90, 0.0),
            row("orders/7", 3, 10, 2.5),
            row("orders/19", 0, 600, 0.5),
        ]
    }

    pub(in super::super) fn places() -> Vec<Place> {
        let place = |process: &str, holds| Place {
            standing: if holds { "holds" } else { "waits" },
            process: process.to_owned(),
            mode: "exclusive",
            time: "3s".to_owned(),
            target: Target::named(process),
            holds,
        };
        vec![place("shop web-1:3", true), place("bank web-2:4", false)]
    }

    fn names(model: &Model) -> Vec<&str> {
        model.shown().iter().map(|row| &*row.name).collect()
    }

    fn model() -> Model {
        let mut model = Model::new();
        model.update(rows());
        model
    }

    #[test]
    fn s_sorts_by_each_column_in_turn() {
        let mut model = model();
        let mut seen = Vec::new();
        for _ in 0..5 {
            seen.push((model.sort.word(), names(&model)[0].to_owned()));
            model.press(Press::Char('s'));
        }
        let seen: Vec<_> = seen.iter().map(|(word, name)| (*word, &**name)).collect();
        let expected = [
            ("waiters", "orders/7"),
            ("hold time", "orders/19"),
            ("contenders gone", "orders/7"),
            ("name", "accounts/3"),
            ("waiters", "orders/7"),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn filter_is_typed_and_cleared() {
        let mut model = model();
        for press in ['/', 'q', 's'] {
            model.press(Press::Char(press));
        }
        assert_eq!((&*model.filter, names(&model)), ("qs", vec![]));
        model.press(Press::Backspace);
        model.press(Press::Backspace);
        "orders".chars().for_each(|it| _ = model.press(Press::Char(it)));
        model.press(Press::Enter);
        assert_eq!(names(&model), ["orders/7", "orders/19"]);
        model.press(Press::Escape);
        assert_eq!(names(&model).len(), 3);
    }

    #[test]
    fn selection_follows_its_name() {
        let mut model = model();
        model.press(Press::Down);
        assert_eq!(names(&model)[1], "accounts/3");
        model.press(Press::Char('s'));
        assert_eq!(model.at(), Some(1), "{:?}", names(&model));
        model.update(rows().split_off(1));
        assert_eq!(model.at(), Some(0), "the name is free");
        model.update(Vec::new());
        assert_eq!(model.at(), None);
        assert_eq!(model.press(Press::Enter), Effect::Nothing);
        assert_eq!(model.mode, Mode::Table);
    }

    #[test]
    fn window_holds_the_selected_row() {
        let mut model = model();
        for (presses, first, at) in [(0, "orders/7", 0), (1, "orders/7", 1), (1, "accounts/3", 1)] {
            (0..presses).for_each(|_| _ = model.press(Press::Down));
            let (rows, selected) = model.window(2);
            assert_eq!((rows.len(), &*rows[0].name), (2, first));
            assert_eq!(selected, Some(at));
        }
        assert_eq!(model.window(0).0, [] as [&Row; 0]);
        model.update(Vec::new());
        assert_eq!(model.window(2), (vec![], None));
    }

    #[test]
    fn unknown_departures_are_sorted_last() {
        let mut model = model();
        let mut rows = rows();
        rows[1].gone = None;
        model.sort = Sort::Gone;
        model.update(rows);
        assert_eq!(names(&model), ["orders/19", "accounts/3", "orders/7"]);
    }

    #[test]
    fn kick_asks_and_hits_whom_it_has_shown() {
        let mut model = model();
        assert_eq!(model.press(Press::Enter), Effect::Read);
        assert_eq!(model.name(), Some("orders/7"));
        model.look(places());
        assert_eq!(model.press(Press::Char('k')), Effect::Nothing);
        // Another process has it by now, and it was not asked about that one.
        model.look(places().split_off(1));
        let shown = places()[..1].to_vec();
        assert_eq!(model.press(Press::Char('y')), Effect::Kick(shown));
    }

    #[test]
    fn any_other_answer_kicks_nothing() {
        for press in [Press::Char('n'), Press::Enter, Press::Escape, Press::Char('q')] {
            let mut model = model();
            model.press(Press::Enter);
            model.look(places());
            model.press(Press::Char('k'));
            assert_eq!(model.press(press), Effect::Nothing, "{press:?}");
            assert_eq!(model.mode, Mode::Name);
        }
    }

    #[test]
    fn name_without_holder_cannot_be_kicked() {
        let mut model = model();
        model.press(Press::Enter);
        model.press(Press::Char('k'));
        let reads = (Mode::Name, "who holds it is being read");
        assert_eq!((model.mode, &*model.note), reads);
        model.look(places().split_off(1));
        model.press(Press::Char('k'));
        let free = (Mode::Name, "no process is known to hold it");
        assert_eq!((model.mode, &*model.note), free);
    }

    #[test]
    fn only_an_answered_read_takes_a_failure_back() {
        let mut model = model();
        model.fail("no answer".to_owned());
        for press in [Press::Char('s'), Press::Enter, Press::Char('k')] {
            model.press(press);
            assert_eq!(model.failure.as_deref(), Some("no answer"), "{press:?}");
        }
        model.look(places());
        assert_eq!(model.failure, None);
        model.fail("no answer".to_owned());
        model.update(rows());
        assert_eq!(model.failure, None);
    }

    #[test]
    fn second_kick_waits_for_the_answer_to_the_first() {
        let mut model = model();
        model.press(Press::Enter);
        model.look(places());
        model.press(Press::Char('k'));
        model.press(Press::Char('y'));
        model.press(Press::Char('k'));
        assert_eq!((model.mode, model.kicks), (Mode::Name, true));
        model.kicked("taken".to_owned());
        model.press(Press::Char('k'));
        assert_eq!(model.mode, Mode::Asks);
    }

    #[test]
    fn contenders_scroll_to_the_last_one() {
        let mut model = model();
        model.press(Press::Enter);
        model.look(places());
        for (press, first) in
            [(Press::Down, 1), (Press::PageDown, 1), (Press::PageUp, 0), (Press::Up, 0)]
        {
            model.press(press);
            assert_eq!(model.first, first, "{press:?}");
        }
        model.press(Press::Down);
        model.look(places()[..1].to_vec());
        assert_eq!(model.first, 0, "the last one has gone");
    }

    #[test]
    fn many_processes_are_counted() {
        assert_eq!(few(&["a", "b", "c"]), "a, b, c");
        assert_eq!(few(&["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
    }
}
