//! No value can change which lock is taken (invariant I9): shown on names that proptest makes up.

use std::fmt::Write as _;

use etcd_locked::__private::name;
use etcd_locked::{LockKey, LockName, Name};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::overlap::{Overlap, overlap as meeting, segments};
use crate::template::Template;

/// Text around a placeholder: few letters, so that names come close to each other.
fn literal() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[ab0%]{1,2}".prop_map(|text| text.replace('%', "="))
    ]
}

/// A segment and the type of its placeholder.
fn segment() -> impl Strategy<Value = String> {
    let ty = prop_oneof![Just("&str"), Just("u8"), Just("bool"), Just("char")];
    prop_oneof![
        2 => "[ab01]{1,2}|true",
        3 => (literal(), ty, literal()).prop_map(|(before, ty, after)| format!("{before}<x: {ty}>{after}")),
    ]
}

fn a_template() -> impl Strategy<Value = String> {
    vec(segment(), 1..4).prop_map(|segments| segments.join("/"))
}

/// A value of whichever type is asked for. Its text is made of what is easily mistaken.
#[derive(Clone, Debug, PartialEq)]
struct Value {
    text: String,
    number: u8,
    truth: bool,
    letter: char,
}

fn value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        3 => "[ab01/%25F=.]{1,5}",
        1 => "\\PC{1,8}",
        1 => any::<String>(),
    ];
    let letter = prop_oneof![prop::char::range('0', 'b'), any::<char>()];
    (text, 0..3_u8, any::<bool>(), letter).prop_map(|(text, number, truth, letter)| Value {
        text,
        number,
        truth,
        letter,
    })
}

/// A few templates live as long as the tests.
fn rendered(text: &str, values: &[Value]) -> (Name, Vec<String>) {
    let template = Template::parse_typed(text);
    assert_eq!(template.mistakes, [], "{text}");
    let mut keys: Vec<&dyn LockKey> = Vec::new();
    let mut written = Vec::new();
    for (placeholder, value) in template.placeholders.iter().zip(values) {
        let mut shown = String::new();
        match placeholder.ty {
            "&str" => {
                keys.push(&value.text);
                shown.push_str(&value.text);
            }
            "u8" => {
                keys.push(&value.number);
                write!(shown, "{}", value.number).expect("a string");
            }
            "bool" => {
                keys.push(&value.truth);
                write!(shown, "{}", value.truth).expect("a string");
            }
            _ => {
                keys.push(&value.letter);
                shown.push(value.letter);
            }
        }
        written.push(shown);
    }
    let name = name(Box::leak(template.untyped(text).into_boxed_str()), &keys);
    (name, written)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Different values, different keys.
    #[test]
    fn values_are_never_mistaken_for_others(
        text in a_template(), one in vec(value(), 3), other in vec(value(), 3)
    ) {
        let (name, written) = rendered(&text, &one);
        let (other_name, other_written) = rendered(&text, &other);
        if let (Some(name), Some(other_name)) = (name.text(), other_name.text()) {
            prop_assert_eq!(name == other_name, written == other_written, "{}", text);
            prop_assert!(!other_name.starts_with(&format!("{name}/")), "{}", text);
        }
    }

    /// The same, with the boundary between two values in question.
    #[test]
    fn values_of_neighbours_do_not_flow_together(
        one in vec("[a/%2F]{1,4}", 2), other in vec("[a/%2F]{1,4}", 2)
    ) {
        let name = |values: &[String]| name("<a>/<b>", &[&values[0], &values[1]]);
        prop_assert_eq!(name(&one) == name(&other), one == other);
    }

    /// A value is one segment, whatever it is: the name has as many as the template, and the literal ones as they are.
    #[test]
    fn a_name_stays_in_its_family(text in a_template(), values in vec(value(), 3)) {
        let (name, _) = rendered(&text, &values);
        if let Some(name) = name.text() {
            let pairs: Vec<_> = name.split('/').zip(text.split('/')).collect();
            prop_assert_eq!(pairs.len(), name.split('/').count());
            prop_assert_eq!(pairs.len(), text.split('/').count());
            for (segment, wanted) in pairs {
                let (before, rest) = wanted.split_once('<').unwrap_or((wanted, ""));
                let after = rest.split_once('>').map_or("", |(_, after)| after);
                let value = segment.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
                prop_assert!(value.is_some_and(|value| value.is_empty() == rest.is_empty()), "{} in {}", segment, wanted);
            }
        }
    }

    /// What the compiler lets stand beside each other never meets; and what it refuses as the same can.
    #[test]
    fn names_that_compile_together_have_no_key_in_common(
        one in a_template(), other in a_template(), values in vec(value(), 3), other_values in vec(value(), 3)
    ) {
        let read = |text: &str| segments(text, &Template::parse_typed(text));
        let meet = meeting(&read(&one), &read(&other));
        let (name, _) = rendered(&one, &values);
        let (other_name, _) = rendered(&other, &other_values);
        if let (Some(name), Some(other_name)) = (name.text(), other_name.text()) {
            let below = |name: &str, above: &str| name.starts_with(&format!("{above}/"));
            if name == other_name {
                prop_assert_eq!(meet, Some(Overlap::Same), "{} and {}", one, other);
            } else if below(name, other_name) {
                prop_assert_eq!(meet, Some(Overlap::Extends), "{} and {}", one, other);
            } else if below(other_name, name) {
                prop_assert_eq!(meet, Some(Overlap::Prefix), "{} and {}", one, other);
            }
        }
    }

    /// A name that is fed back as text is the same name.
    #[test]
    fn a_name_fed_back_stays_itself(text in a_template(), values in vec(value(), 3)) {
        let (name, _) = rendered(&text, &values);
        if let Some(text) = name.text() {
            let again = text.lock_name();
            prop_assert_eq!(again.text(), Some(text));
            prop_assert_eq!(text.to_owned().lock_name(), again);
        }
    }

    /// And no other text is taken for a name that a value could have written otherwise.
    #[test]
    fn a_text_that_is_a_name_has_one_reading(text in "[a%2Ff/<>]{1,8}") {
        if let Some(name) = text.lock_name().text() {
            prop_assert_eq!(name, text.as_str(), "a name given at run time is not changed");
            prop_assert!(!name.contains("%f") && !name.contains("//") && !name.contains('<'));
        }
    }
}
