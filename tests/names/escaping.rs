//! Property tests of escaping: no value can change which lock is taken (invariant I9).

use std::fmt::Write as _;

use etcd_locked::__private::name;
use etcd_locked::{LockKey, LockName, Name};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::overlap::{Overlap, overlap as overlap_of, segments};
use crate::template::Template;

/// Generates text around a placeholder, from few letters, so that names are often nearly equal.
fn literal() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[ab0%]{1,2}".prop_map(|text| text.replace('%', "="))]
}

/// Generates a segment: literal text, or a typed placeholder with text around it.
fn segment() -> impl Strategy<Value = String> {
    let ty = prop_oneof![Just("&str"), Just("u8"), Just("bool"), Just("char")];
    prop_oneof![
        2 => "[ab01]{1,2}|true",
        3 => (literal(), ty, literal()).prop_map(|(before, ty, after)| format!("{before}<x: {ty}>{after}")),
    ]
}

fn any_template() -> impl Strategy<Value = String> {
    vec(segment(), 1..4).prop_map(|segments| segments.join("/"))
}

/// One value of each type. Their texts have many characters that need escaping.
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

/// Renders a name, and returns it with its unescaped values. The template is leaked.
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

    // Different values give different keys.
    #[test]
    fn different_values_give_different_names(
        text in any_template(), one in vec(value(), 3), other in vec(value(), 3)
    ) {
        let (name, written) = rendered(&text, &one);
        let (other_name, other_written) = rendered(&text, &other);
        if let (Some(name), Some(other_name)) = (name.text(), other_name.text()) {
            prop_assert_eq!(name == other_name, written == other_written, "{}", text);
            prop_assert!(!other_name.starts_with(&format!("{name}/")), "{}", text);
        }
    }

    // Values that differ only in the boundary between them give different names too.
    #[test]
    fn neighbouring_values_stay_separate(
        one in vec("[a/%2F]{1,4}", 2), other in vec("[a/%2F]{1,4}", 2)
    ) {
        let name = |values: &[String]| name("<a>/<b>", &[&values[0], &values[1]]);
        prop_assert_eq!(name(&one) == name(&other), one == other);
    }

    // A value stays inside its segment: the name has as many segments as the template, and the same literal ones.
    #[test]
    fn name_keeps_the_segments_of_its_template(text in any_template(), values in vec(value(), 3)) {
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

    // Two names that the compiler accepts together never overlap, with any values.
    #[test]
    fn accepted_names_have_no_key_in_common(
        one in any_template(), other in any_template(), values in vec(value(), 3), other_values in vec(value(), 3)
    ) {
        let read = |text: &str| segments(text, &Template::parse_typed(text));
        let meet = overlap_of(&read(&one), &read(&other));
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

    // A name that is given as text is the same name.
    #[test]
    fn name_given_as_text_is_the_same_name(text in any_template(), values in vec(value(), 3)) {
        let (name, _) = rendered(&text, &values);
        if let Some(text) = name.text() {
            let again = text.lock_name();
            prop_assert_eq!(again.text(), Some(text));
            prop_assert_eq!(text.to_owned().lock_name(), again);
        }
    }

    // A text is a name only if every value is in its canonical form.
    #[test]
    fn text_is_a_name_only_in_its_canonical_form(text in "[a%2Ff/<>]{1,8}") {
        if let Some(name) = text.lock_name().text() {
            prop_assert_eq!(name, text.as_str(), "a name given at run time is not changed");
            prop_assert!(!name.contains("%f") && !name.contains("//") && !name.contains('<'));
        }
    }
}
