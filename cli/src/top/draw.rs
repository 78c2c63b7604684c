//! Picture of `top`'s model, on a terminal of any size.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Row as Cells, Table, TableState};

use super::model::{Mode, Model, Place, few};
use crate::output::{Shown, lines};

const GAP: u16 = 1;

const PROCESS: u16 = 16;

/// Width that a column of names may have on any terminal.
const NAME: u16 = 20;

pub(super) fn draw(frame: &mut Frame<'_>, model: &Model) {
    let area = frame.area();
    let notices = notices(model).flat_map(|notice| lines(&notice, area.width.into()));
    let notices: Vec<_> = notices.take(usize::from(area.height / 2)).map(line).collect();
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(u16::try_from(notices.len()).unwrap_or(u16::MAX)),
        Constraint::Length(1),
    ]);
    let [top, middle, said, bottom] = areas.areas(area);
    let head = match model.name() {
        Some(name) => contenders(frame, middle, model, name),
        None => names(frame, middle, model),
    };
    frame.render_widget(line(head).bold(), top);
    frame.render_widget(Text::from_iter(notices).bold(), said);
    let foot = line(foot(model));
    let foot = match model.mode {
        Mode::Asks => foot.reversed(),
        _ => foot.dim(),
    };
    frame.render_widget(foot, bottom);
}

fn notices(model: &Model) -> impl Iterator<Item = String> {
    let old = model.failure.as_ref().map(|failure| format!("what is shown is old: {failure}"));
    let kicks = model.kicks.then(|| "a kick is under way".to_owned());
    let note = Some(model.note.clone()).filter(|note| !note.is_empty());
    let question = (model.mode == Mode::Asks).then(|| {
        let holders: Vec<_> = model.holders().map(Place::process).collect();
        let many = match holders.len() {
            1 => String::new(),
            many => format!("{many} holders: "),
        };
        let (name, holders) = (model.name().unwrap_or_default(), few(&holders));
        format!("Take `{name}` away from {many}{holders}? What is half done stays so.")
    });
    [old, kicks, note, question].into_iter().flatten()
}

fn foot(model: &Model) -> String {
    match model.mode {
        Mode::Table => "/ filter  s sort  Enter look into  q quit".to_owned(),
        Mode::Filter => format!("/{}_  Enter done  Esc no filter", model.filter),
        Mode::Name => "k kick  Esc back  q quit  arrows scroll".to_owned(),
        Mode::Asks => "Take it away? [y/N]".to_owned(),
    }
}

fn line(text: String) -> Line<'static> {
    Line::from(Shown(&text).to_string())
}

/// Draws the names; returns the head line.
fn names(frame: &mut Frame<'_>, area: Rect, model: &Model) -> String {
    // One line is for the header.
    let (rows, at) = model.window(usize::from(area.height).saturating_sub(1));
    // The names' column fits the longest name, up to a third of the terminal; holders get the rest.
    let longest = rows.iter().map(|row| row.name.chars().count()).max();
    let longest = u16::try_from(longest.unwrap_or(0)).unwrap_or(u16::MAX);
    let longest = longest.min(NAME.max(area.width / 3)).max(4);
    let rows = rows.into_iter().map(|row| {
        let gone = row.gone.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"));
        [&row.cells()[..], &[gone]].concat()
    });
    let columns = [
        ("NAME", longest),
        ("MODE", 9),
        ("HOLDER", PROCESS),
        ("HELD FOR", 8),
        ("WAITING", 7),
        ("LONGEST WAIT", 12),
        ("GONE/S", 6),
    ];
    let table = table(&columns, 2, area.width, rows);
    let table = table.row_highlight_style(Style::new().reversed());
    let mut state = TableState::new().with_selected(at);
    frame.render_stateful_widget(table, area, &mut state);

    let filter = match model.filter.is_empty() {
        true => String::new(),
        false => format!("  filter: {}", model.filter),
    };
    let waiting: usize = model.rows.iter().map(|row| row.waiting).sum();
    let sort = model.sorted_by();
    let names = model.rows.len();
    format!("names locked: {names}, waiting: {waiting}  by {sort}{filter}")
}

/// Draws the contenders of a name; returns the head line.
fn contenders(frame: &mut Frame<'_>, area: Rect, model: &Model, name: &str) -> String {
    let Some(all) = &model.places else {
        return format!("{name}: its contenders are being read");
    };
    let room = usize::from(area.height).saturating_sub(1);
    let places: Vec<_> = all.iter().skip(model.first).take(room).collect();
    let head = match (all.len(), places.len()) {
        (0, _) => format!("{name} is free"),
        (many, shown) if shown == many => format!("{name}: all contenders, in order"),
        (many, shown) => {
            let (first, last) = (model.first + 1, model.first + shown);
            format!("{name}: contenders {first} to {last} of {many}, in order")
        }
    };
    let rows = places.into_iter().map(|place| place.cells.to_vec());
    let columns = [("", 8), ("PROCESS", PROCESS), ("MODE", 9), ("FOR", 8)];
    frame.render_widget(table(&columns, 1, area.width, rows), area);
    head
}

/// Draws a table of these columns, each with its width; the one at `wide` gets the rest. If there is too little room, columns at the
/// right are left out.
fn table(
    columns: &[(&'static str, u16)],
    wide: usize,
    width: u16,
    rows: impl Iterator<Item = Vec<String>>,
) -> Table<'static> {
    let fit = columns.iter().scan(width.saturating_add(GAP), |left, (_, width)| {
        *left = left.checked_sub(width + GAP)?;
        Some(())
    });
    let fit = fit.count().max(1);
    // If the wide one does not fit, the first one gets its room.
    let wide = if wide < fit { wide } else { 0 };
    let widths = columns.iter().take(fit).enumerate();
    let widths = widths.map(|(at, (_, width))| match at == wide {
        true => Constraint::Fill(1),
        false => Constraint::Length(*width),
    });
    let heads = columns.iter().take(fit).map(|(head, _)| *head);
    let rows = rows.map(|cells| Cells::from_iter(cells.into_iter().take(fit).map(line)));
    Table::new(rows, widths).column_spacing(GAP).header(Cells::from_iter(heads).bold())
}
