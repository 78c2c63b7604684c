//! Retention of many names in a row: `at_least` costs the same for each (rule P39).

use std::time::Duration;

use super::stage::{Ask, Stage};
use super::steps::{is_linear, steps_of};

/// Names, at first.
const NAMES: usize = 200;

#[test]
fn retention_costs_the_same_for_each_name() {
    is_linear("names that stay locked", NAMES, |names| {
        let mut stage = Stage::of(1);
        stage.take(0, "warm");
        steps_of(&mut stage, |stage| {
            for name in 0..names {
                let ask = Ask {
                    hold: Some(Duration::from_millis(2)),
                    at_least: Some(Duration::from_secs(60)),
                    ..Ask::of(&format!("name-{name}"))
                };
                let call = stage.ask(0, ask);
                stage.serve(call);
                stage.run(Duration::from_millis(5));
            }
        })
    });
}
