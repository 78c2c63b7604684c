//! Picture of the model, on a terminal of any size.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Row as Cells, Table, TableState};

use super::model::{Mode, Model};
use crate::time::shown;

/// Draws the model.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model) {
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ]);
    let [top, middle, bottom] = areas.areas(frame.area());
    frame.render_widget(Line::from(head(model)).bold(), top);
    match model.name() {
        Some(_) => name(frame, middle, model),
        None => names(frame, middle, model),
    }
    let foot = Line::from(foot(model));
    let foot = match model.mode {
        Mode::Asks => foot.reversed(),
        _ => foot.dim(),
    };
    frame.render_widget(foot, bottom);
}

fn head(model: &Model) -> String {
    let (names, waiting) = (model.len(), model.waiting());
    match model.name() {
        Some(name) => format!("{name}: all contenders, in order"),
        None => {
            let filter = match model.filter.is_empty() {
                true => String::new(),
                false => format!("  filter: {}", model.filter),
            };
            let sort = model.sort.word();
            format!("{names} names locked, {waiting} calls wait  by {sort}{filter}")
        }
    }
}

fn foot(model: &Model) -> String {
    let keys = match model.mode {
        Mode::Table => "/ filter  s sort  Enter look into  q quit",
        Mode::Filter => "Enter done  Esc no filter",
        Mode::Name => "k kick  Esc back  q quit",
        Mode::Asks => {
            let holders: Vec<_> = model.holders().map(|it| &*it.process).collect();
            return format!(
                "Take `{}` away from {}? What is half done stays so. [y/N]",
                model.name().unwrap_or_default(),
                holders.join(", ")
            );
        }
    };
    match (model.mode, model.note.is_empty()) {
        (Mode::Filter, _) => format!("/{}_  {keys}", model.filter),
        (_, true) => keys.to_owned(),
        (_, false) => format!("{}  {keys}", model.note),
    }
}

fn names(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let time = |time: Option<_>| time.map_or_else(|| "-".to_owned(), shown);
    // One line is the header's.
    let (rows, at) = model.window(usize::from(area.height).saturating_sub(1));
    let rows = rows.into_iter().map(|row| {
        Cells::new([
            row.name.clone(),
            row.mode.to_owned(),
            row.holder.clone(),
            time(row.held),
            row.waiting.to_string(),
            time(row.longest),
            row.handovers
                .map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}")),
        ])
    });
    let widths = [
        Constraint::Fill(3),
        Constraint::Length(9),
        Constraint::Fill(3),
        Constraint::Length(8),
        Constraint::Length(7),
        Constraint::Length(12),
        Constraint::Length(12),
    ];
    let heads = [
        "NAME",
        "MODE",
        "HOLDER",
        "HELD FOR",
        "WAITING",
        "LONGEST WAIT",
        "HAND-OVERS/S",
    ];
    let table = Table::new(rows, widths)
        .header(Cells::new(heads).bold())
        .row_highlight_style(Style::new().reversed());
    let mut state = TableState::new().with_selected(at);
    frame.render_stateful_widget(table, area, &mut state);
}

fn name(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let places = model.places.iter().take(usize::from(area.height));
    let rows = places.map(|place| {
        Cells::new([
            place.standing.to_owned(),
            place.process.clone(),
            place.mode.to_owned(),
            place.time.clone(),
        ])
    });
    let widths = [
        Constraint::Length(8),
        Constraint::Fill(1),
        Constraint::Length(9),
        Constraint::Length(8),
    ];
    let heads = ["", "PROCESS", "MODE", "FOR"];
    let table = Table::new(rows, widths).header(Cells::new(heads).bold());
    frame.render_widget(table, area);
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
        lines
            .map(|line: String| line.trim_end().to_owned())
            .collect()
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
                "3 names locked, 4 calls wait  by waiters",
                "NAME                    MODE      HOLDER                  HELD FOR WAITING LONGEST WAIT HAND-OVERS/S",
                "orders/7                exclusive shop web-1:3            10s      3       -            2.5",
                "accounts/3              exclusive shop web-1:1            1m 30s   1       -            0.0",
                "orders/19               exclusive shop web-1:0            10m      0       -            0.5",
                "",
                "/ filter  s sort  Enter look into  q quit",
            ]
        );
    }

    #[test]
    fn hand_overs_that_are_not_known_are_a_dash() {
        let mut rows = rows();
        rows[1].handovers = None;
        let mut model = Model::new();
        model.update(rows);
        let lines = captured(&model, 100, 7);
        assert!(lines[2].ends_with(" -            -"), "{lines:#?}");
        assert!(lines[3].ends_with(" -            0.0"), "{lines:#?}");
    }

    #[test]
    fn filter_is_shown_while_it_is_typed() {
        let mut model = model();
        "/19"
            .chars()
            .for_each(|it| _ = model.press(Press::Char(it)));
        let lines = captured(&model, 100, 6);
        assert!(lines[0].ends_with("by waiters  filter: 19"), "{lines:#?}");
        assert!(lines[2].starts_with("orders/19 ") && lines[3].is_empty());
        assert_eq!(lines[5], "/19_  Enter done  Esc no filter");
    }

    #[test]
    fn question_names_whom_a_kick_hits() {
        let mut model = model();
        model.press(Press::Enter);
        model.look(places());
        model.press(Press::Char('k'));
        assert_eq!(
            captured(&model, 90, 6),
            [
                "orders/7: all contenders, in order",
                "         PROCESS                                                        MODE      FOR",
                "holds    shop web-1:3                                                   exclusive 3s",
                "waits    bank web-2:4                                                   exclusive 3s",
                "",
                "Take `orders/7` away from shop web-1:3? What is half done stays so. [y/N]",
            ]
        );
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
