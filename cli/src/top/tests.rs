//! Tests of `top`: they press keys, and read what the terminal shows.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;

use super::draw::draw;
use super::model::{Effect, Mode, Model, Place, Seen, few};
use crate::kick::Target;
use crate::row::Row;

/// Makes rows of names, with their waiters and the seconds for which they are held.
fn rows() -> Vec<Row> {
    let row = |name: &str, waiting, held, gone| Row {
        name: name.to_owned(),
        mode: "exclusive",
        holder: format!("shop web-1:{waiting}"),
        held: Some(Duration::from_secs(held)),
        waiting,
        longest: None,
        gone,
    };
    vec![
        row("accounts/3", 1, 90, None),
        row("orders/7", 3, 10, Some(2.5)),
        row("orders/19", 0, 600, Some(0.0)),
    ]
}

fn places() -> Vec<Place> {
    let place = |process: &str, holds| Place {
        cells: [if holds { "holds" } else { "waits" }, process, "exclusive", "3s"]
            .map(String::from),
        target: Target { key: process.into(), created: 7, changed: 7, call: None },
        holds,
    };
    vec![place("shop web-1:3", true), place("bank web-2:4", false)]
}

fn model() -> Model {
    let mut model = Model::default();
    model.update(Seen::Names(rows()));
    model
}

/// Makes a model that inspects the first name, which has these contenders.
fn looking(places: Vec<Place>) -> Model {
    let mut model = model();
    assert_eq!(model.press(KeyCode::Enter), Effect::Read);
    model.update(Seen::Contenders(places));
    model
}

fn typed(model: &mut Model, text: &str) {
    text.chars().for_each(|it| _ = model.press(KeyCode::Char(it)));
}

/// Returns the lines of a terminal of this size, without trailing spaces.
fn captured(model: &Model, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| draw(frame, model)).expect("drawn");
    let buffer = terminal.backend().buffer().clone();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect();
    let lines = (0..height).map(line);
    lines.map(|line: String| line.trim_end().to_owned()).collect()
}

fn names(model: &Model) -> (Vec<&str>, Option<&str>) {
    let (rows, at) = model.window(100);
    let names: Vec<_> = rows.iter().map(|row| &*row.name).collect();
    let marked = at.map(|at| names[at]);
    (names, marked)
}

#[test]
fn table_shows_every_name_by_its_waiters() {
    insta::assert_snapshot!(captured(&model(), 100, 7).join("\n"), @r"
    names locked: 3, waiting: 4  by waiters
    NAME       MODE      HOLDER                                     HELD FOR WAITING LONGEST WAIT GONE/S
    orders/7   exclusive shop web-1:3                               10s      3       -            2.5
    accounts/3 exclusive shop web-1:1                               1m 30s   1       -            -
    orders/19  exclusive shop web-1:0                               10m      0       -            0.0

    / filter  s sort  Enter look into  q quit
    ");
}

#[test]
fn s_sorts_by_each_column_in_turn() {
    let mut model = model();
    for (word, names_in_order) in [
        ("waiters", ["orders/7", "accounts/3", "orders/19"]),
        ("hold time", ["orders/19", "accounts/3", "orders/7"]),
        ("contenders gone", ["orders/7", "orders/19", "accounts/3"]), // the last one's are not known
        ("name", ["accounts/3", "orders/19", "orders/7"]),
        ("waiters", ["orders/7", "accounts/3", "orders/19"]),
    ] {
        assert_eq!((model.sorted_by(), names(&model).0), (word, names_in_order.to_vec()));
        typed(&mut model, "s");
    }
}

#[test]
fn filter_is_typed_shown_and_cleared() {
    let mut model = model();
    typed(&mut model, "/q1");
    model.press(KeyCode::Backspace);
    model.press(KeyCode::Backspace);
    typed(&mut model, "19");
    let lines = captured(&model, 100, 6);
    assert!(lines[0].ends_with("by waiters  filter: 19"), "{lines:#?}");
    assert_eq!(lines[5], "/19_  Enter done  Esc no filter");
    model.press(KeyCode::Enter);
    assert_eq!(names(&model).0, ["orders/19"]);
    model.press(KeyCode::Esc);
    assert_eq!(names(&model).0.len(), 3);
}

#[test]
fn selection_follows_its_name() {
    let mut model = model();
    model.press(KeyCode::Down);
    assert_eq!(names(&model).1, Some("accounts/3"));
    typed(&mut model, "ss");
    assert_eq!(names(&model), (vec!["orders/7", "orders/19", "accounts/3"], Some("accounts/3")));
    model.update(Seen::Names(rows().split_off(1)));
    assert_eq!(names(&model).1, Some("orders/7"), "the name is free");
    model.update(Seen::Names(Vec::new()));
    assert_eq!(model.press(KeyCode::Enter), Effect::Nothing);
    assert_eq!(model.mode, Mode::Table);
}

#[test]
fn selected_name_stays_in_sight() {
    let mut model = Model::default();
    let row = |n| Row { name: format!("jobs/{n:03}"), ..rows()[0].clone() };
    model.update(Seen::Names((0..1_000).map(row).collect()));
    (0..50).for_each(|_| _ = model.press(KeyCode::PageDown));
    let lines = captured(&model, 100, 8);
    assert!(lines[6].starts_with("jobs/500 "), "{lines:#?}");
    assert_eq!(captured(&model, 3, 1).len(), 1);
}

#[test]
fn question_names_whom_a_kick_hits() {
    let mut model = looking(places());
    typed(&mut model, "k");
    insta::assert_snapshot!(captured(&model, 90, 6).join("\n"), @r"
    orders/7: all contenders, in order
             PROCESS                                                        MODE      FOR
    holds    shop web-1:3                                                   exclusive 3s
    waits    bank web-2:4                                                   exclusive 3s
    Take `orders/7` away from shop web-1:3? What is half done stays so.
    Take it away? [y/N]
    ");
    let mut model = looking(vec![places()[0].clone(); 50]);
    typed(&mut model, "k");
    insta::assert_snapshot!(captured(&model, 30, 12)[6..].join("\n"), @r"
    Take `orders/7` away from 50
    holders: shop web-1:3, shop
    web-1:3, shop web-1:3 and 47
    more? What is half done stays
    so.
    Take it away? [y/N]
    ");
    assert_eq!(few(&["a", "b", "c"]), "a, b, c");
}

#[test]
fn kick_hits_whom_the_question_has_shown() {
    let mut model = looking(places());
    typed(&mut model, "k");
    // Another process holds the lock by now, and the user was not asked about that one.
    model.update(Seen::Contenders(places().split_off(1)));
    assert_eq!(model.press(KeyCode::Char('y')), Effect::Kick(places()[..1].to_vec()));
    typed(&mut model, "k");
    assert_eq!((model.mode, model.kicks), (Mode::Name, true), "the first is not answered");
    model.kicked("taken".to_owned());
    typed(&mut model, "k");
    assert_eq!(model.mode, Mode::Asks);
}

#[test]
fn kick_needs_a_holder_and_a_yes() {
    for key in [KeyCode::Char('n'), KeyCode::Enter, KeyCode::Esc, KeyCode::Char('q')] {
        let mut model = looking(places());
        typed(&mut model, "k");
        assert_eq!((model.press(key), model.mode), (Effect::Nothing, Mode::Name), "{key:?}");
    }
    let mut model = model();
    typed(&mut model, "kk");
    assert_eq!((model.mode, &*model.note), (Mode::Name, "who holds it is being read"));
    model.update(Seen::Contenders(places().split_off(1)));
    typed(&mut model, "k");
    assert_eq!((model.mode, &*model.note), (Mode::Name, "no process is known to hold it"));
}
