//! Picture of the model, on a terminal of any size.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Row as Cells, Table, TableState};

use super::model::{Mode, Model, few};
use crate::time::shown;

/// Blanks between columns.
const GAP: u16 = 1;

/// How wide a column with processes is at least.
const PROCESS: u16 = 16;

/// How wide a column with names may be on any terminal.
const NAME: u16 = 20;

/// Draws the model.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model) {
    let area = frame.area();
    let notices = notices(model).into_iter();
    let notices = notices.flat_map(|notice| wrapped(&notice, area.width.into()));
    let notices: Vec<_> = notices.take(usize::from(area.height / 2)).collect();
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
    frame.render_widget(Line::from(head).bold(), top);
    let notices: Vec<_> = notices.into_iter().map(Line::from).collect();
    frame.render_widget(Text::from(notices).bold(), said);
    let foot = Line::from(foot(model));
    let foot = match model.mode {
        Mode::Asks => foot.reversed(),
        _ => foot.dim(),
    };
    frame.render_widget(foot, bottom);
}

/// Notes for the user, below the table.
fn notices(model: &Model) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(failure) = &model.failure {
        all.push(format!("what is shown is old: {failure}"));
    }
    if model.kicks {
        all.push("a kick is under way".to_owned());
    }
    if !model.note.is_empty() {
        all.push(model.note.clone());
    }
    if model.mode == Mode::Asks {
        let holders: Vec<_> = model.holders().map(|it| &*it.process).collect();
        let many = match holders.len() {
            1 => String::new(),
            many => format!("{many} holders: "),
        };
        all.push(format!(
            "Take `{}` away from {many}{}? What is half done stays so.",
            model.name().unwrap_or_default(),
            few(&holders)
        ));
    }
    all
}

/// Lines of a text that are no longer than this; a longer word is broken.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut left = width;
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        while let Some(line) = lines.last_mut() {
            let gap = usize::from(!line.is_empty());
            if gap + word.len() <= left {
                line.extend([' '].iter().take(gap).chain(&word));
                left -= gap + word.len();
                break;
            }
            if line.is_empty() {
                line.extend(word.drain(..left.max(1)));
            }
            lines.push(String::new());
            left = width;
        }
    }
    lines
}

fn foot(model: &Model) -> String {
    match model.mode {
        Mode::Table => "/ filter  s sort  Enter look into  q quit".to_owned(),
        Mode::Filter => format!("/{}_  Enter done  Esc no filter", model.filter),
        Mode::Name => "k kick  Esc back  q quit  arrows scroll".to_owned(),
        Mode::Asks => "Take it away? [y/N]".to_owned(),
    }
}

/// Draws the names; returns the head line.
fn names(frame: &mut Frame<'_>, area: Rect, model: &Model) -> String {
    let time = |time: Option<_>| time.map_or_else(|| "-".to_owned(), shown);
    // One line is the header's.
    let (rows, at) = model.window(usize::from(area.height).saturating_sub(1));
    // Names are as wide as they are, up to a third of the terminal; holders have what is left.
    let longest = rows.iter().map(|row| row.name.chars().count()).max();
    let longest = u16::try_from(longest.unwrap_or(0)).unwrap_or(u16::MAX);
    let longest = longest.min(NAME.max(area.width / 3)).max(4);
    let rows = rows.into_iter().map(|row| {
        vec![
            row.name.clone(),
            row.mode.to_owned(),
            row.holder.clone(),
            time(row.held),
            row.waiting.to_string(),
            time(row.longest),
            row.gone.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}")),
        ]
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
    let (names, waiting, sort) = (model.len(), model.waiting(), model.sort.word());
    let names = match names {
        1 => "1 name".to_owned(),
        _ => format!("{names} names"),
    };
    format!("{names} locked, {waiting} waiting  by {sort}{filter}")
}

/// Draws the contenders of a name; returns the head line.
fn contenders(frame: &mut Frame<'_>, area: Rect, model: &Model, name: &str) -> String {
    let Some(all) = &model.places else {
        return format!("{name}: its contenders are being read");
    };
    let lines = usize::from(area.height).saturating_sub(1);
    let places: Vec<_> = all.iter().skip(model.first).take(lines).collect();
    let head = match (all.len(), places.len()) {
        (0, _) => format!("{name} is free"),
        (many, shown) if shown == many => format!("{name}: all contenders, in order"),
        (many, shown) => {
            let (first, last) = (model.first + 1, model.first + shown);
            format!("{name}: contenders {first} to {last} of {many}, in order")
        }
    };
    let rows = places.into_iter().map(|place| {
        vec![
            place.standing.to_owned(),
            place.process.clone(),
            place.mode.to_owned(),
            place.time.clone(),
        ]
    });
    let columns = [("", 8), ("PROCESS", PROCESS), ("MODE", 9), ("FOR", 8)];
    frame.render_widget(table(&columns, 1, area.width, rows), area);
    head
}

/// A table of these columns, each with its width; the one at `wide` has what is left. Where not all have room, those at the right are
/// left out.
fn table(
    columns: &[(&'static str, u16)],
    wide: usize,
    width: u16,
    rows: impl Iterator<Item = Vec<String>>,
) -> Table<'static> {
    let ends = columns.iter().scan(0, |end: &mut u16, (_, width)| {
        *end = end.saturating_add(*width);
        let reached = *end;
        *end = end.saturating_add(GAP);
        Some(reached)
    });
    let fit = ends.take_while(|end| *end <= width).count().max(1);
    // Where there is no room for the wide one, the first one has it.
    let wide = if wide < fit { wide } else { 0 };
    let widths = columns.iter().take(fit).enumerate();
    let widths = widths.map(|(at, (_, width))| match at == wide {
        true => Constraint::Fill(1),
        false => Constraint::Length(*width),
    });
    let heads = columns.iter().take(fit).map(|(head, _)| *head);
    let rows = rows.map(|cells| Cells::new(cells.into_iter().take(fit)));
    Table::new(rows, widths).column_spacing(GAP).header(Cells::new(heads).bold())
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::model::Press;
    use super::super::model::tests::{places, rows};
    use super::*;

    /// The lines of a terminal of this size, without what trails.
    fn captured(model: &Model, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|frame| draw(frame, model)).expect("drawn");
        let buffer = terminal.backend().buffer().clone();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        let lines = (0..height).map(line);
        lines.map(|line: String| line.trim_end().to_owned()).collect()
    }

    fn model() -> Model {
        let mut model = Model::new();
        model.update(rows());
        model
    }

    #[test]
    fn table_shows_every_name_by_its_waiters() {
        assert_eq!(
            captured(&model(), 100, 7),
            [
                "3 names locked, 4 waiting  by waiters",
                "NAME       MODE      HOLDER                                     HELD FOR WAITING LONGEST WAIT GONE/S",
                "orders/7   exclusive shop web-1:3                               10s      3       -            2.5",
                "accounts/3 exclusive shop web-1:1                               1m 30s   1       -            0.0",
                "orders/19  exclusive shop web-1:0                               10m      0       -            0.5",
                "",
                "/ filter  s sort  Enter look into  q quit",
            ]
        );
    }

    #[test]
    fn long_names_leave_room_for_their_holders() {
        let mut rows = rows();
        rows[0].name = "n".repeat(90);
        let mut model = Model::new();
        model.update(rows);
        let lines = captured(&model, 100, 7);
        assert!(lines.iter().any(|line| line.contains(" shop web-1:1 ")), "{lines:#?}");
    }

    #[test]
    fn departures_that_are_not_known_are_a_dash() {
        let mut rows = rows();
        rows[1].gone = None;
        let mut model = Model::new();
        model.update(rows);
        let lines = captured(&model, 100, 7);
        assert!(lines[2].ends_with(" -            -"), "{lines:#?}");
        assert!(lines[3].ends_with(" -            0.0"), "{lines:#?}");
    }

    #[test]
    fn filter_is_shown_while_it_is_typed() {
        let mut model = model();
        "/19".chars().for_each(|it| _ = model.press(Press::Char(it)));
        let lines = captured(&model, 100, 6);
        assert!(lines[0].ends_with("by waiters  filter: 19"), "{lines:#?}");
        assert!(lines[2].starts_with("orders/19 ") && lines[3].is_empty());
        assert_eq!(lines[5], "/19_  Enter done  Esc no filter");
    }

    /// The model after the question, for a name that these hold.
    fn asked(holders: usize) -> Model {
        let mut model = model();
        model.press(Press::Enter);
        let [holder, waiter] = &places()[..] else {
            panic!("two places");
        };
        let mut all = vec![holder.clone(); holders];
        all.push(waiter.clone());
        model.look(all);
        model.press(Press::Char('k'));
        model
    }

    #[test]
    fn question_names_whom_a_kick_hits() {
        assert_eq!(
            captured(&asked(1), 90, 6),
            [
                "orders/7: all contenders, in order",
                "         PROCESS                                                        MODE      FOR",
                "holds    shop web-1:3                                                   exclusive 3s",
                "waits    bank web-2:4                                                   exclusive 3s",
                "Take `orders/7` away from shop web-1:3? What is half done stays so.",
                "Take it away? [y/N]",
            ]
        );
    }

    #[test]
    fn question_is_whole_on_a_narrow_terminal() {
        assert_eq!(
            captured(&asked(50), 30, 12)[6..],
            [
                "Take `orders/7` away from 50",
                "holders: shop web-1:3, shop",
                "web-1:3, shop web-1:3 and 47",
                "more? What is half done stays",
                "so.",
                "Take it away? [y/N]",
            ]
        );
    }

    #[test]
    fn narrow_terminal_drops_the_right_columns() {
        for (width, heads) in [
            (78, "NAME       MODE      HOLDER               HELD FOR WAITING LONGEST WAIT GONE/S"),
            (54, "NAME       MODE      HOLDER           HELD FOR WAITING"),
            (40, "NAME       MODE      HOLDER"),
            (30, "NAME                 MODE"),
            (12, "NAME"),
        ] {
            let lines = captured(&model(), width, 6);
            assert_eq!(lines[1], heads, "{width}");
            assert!(lines[2].starts_with("orders/7"), "{lines:#?}");
        }
    }

    #[test]
    fn contenders_are_shown_from_where_one_scrolls_to() {
        let mut model = model();
        model.press(Press::Enter);
        let all = (0..100).map(|n| super::super::model::Place {
            process: format!("shop web-{n}"),
            ..places()[1].clone()
        });
        model.look(all.collect());
        model.press(Press::PageDown);
        model.press(Press::Down);
        let lines = captured(&model, 60, 6);
        assert_eq!(lines[0], "orders/7: contenders 12 to 14 of 100, in order");
        assert!(lines[2].contains("shop web-11 "), "{lines:#?}");
    }

    #[test]
    fn old_rows_say_that_they_are_old() {
        let mut model = model();
        model.fail("etcd does not answer within 5s".to_owned());
        model.press(Press::Down);
        let lines = captured(&model, 60, 8);
        assert_eq!(lines[6], "what is shown is old: etcd does not answer within 5s");
    }

    #[test]
    fn selected_name_stays_in_sight() {
        let mut model = model();
        let many = (0..1_000).map(|n| super::super::model::Row {
            name: format!("jobs/{n:03}"),
            ..rows()[0].clone()
        });
        model.update(many.collect());
        for _ in 0..500 {
            model.press(Press::Down);
        }
        let lines = captured(&model, 100, 8).join("\n");
        assert!(lines.contains("jobs/500"), "{lines}");
    }

    #[test]
    fn tiny_terminal_is_no_error() {
        assert_eq!(captured(&model(), 3, 1).len(), 1);
    }
}
