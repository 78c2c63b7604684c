//! Overlap of two declared names: can they be the same key, or can one be among the keys of the other?
//!
//! Only the text decides, so that the result is known at compile time. If the text does not exclude an overlap, they overlap.

use crate::template::Template;

/// Kind of overlap between two names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overlap {
    /// Some values give both names the same key.
    Same,
    /// The first is a path-prefix of the second.
    Prefix,
    /// The second is a path-prefix of the first.
    Extends,
}

/// Text between two `/`: `v<id: u64>.x`, or all literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    before: String,
    /// Type of the placeholder, if there is one, and the literal text after it.
    rest: Option<(String, String)>,
}

/// Splits a template that has no mistakes into its segments.
pub(crate) fn segments(text: &str, template: &Template<'_>) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut placeholders = template.placeholders.iter().peekable();
    let mut at = 0;
    loop {
        let slash = |from: usize| text[from..].find('/').map_or(text.len(), |len| from + len);
        let mut end = slash(at);
        let inside = placeholders.next_if(|placeholder| placeholder.range.start < end);
        let Some(placeholder) = inside else {
            segments.push(Segment { before: text[at..end].to_owned(), rest: None });
            if end == text.len() {
                return segments;
            }
            at = end + 1;
            continue;
        };
        end = slash(placeholder.range.end);
        let after = text[placeholder.range.end..end].to_owned();
        segments.push(Segment {
            before: text[at..placeholder.range.start].to_owned(),
            rest: Some((placeholder.ty.to_owned(), after)),
        });
        if end == text.len() {
            return segments;
        }
        at = end + 1;
    }
}

/// Returns how two names overlap; `None` if some segment differs.
///
/// Otherwise two names of equal length can be the same key; of unequal length, the shorter one is a prefix.
pub(crate) fn overlap(one: &[Segment], other: &[Segment]) -> Option<Overlap> {
    if one.iter().zip(other).any(|(one, other)| differ(one, other)) {
        return None;
    }
    Some(match one.len().cmp(&other.len()) {
        std::cmp::Ordering::Less => Overlap::Prefix,
        std::cmp::Ordering::Equal => Overlap::Same,
        std::cmp::Ordering::Greater => Overlap::Extends,
    })
}

fn differ(one: &Segment, other: &Segment) -> bool {
    match (&one.rest, &other.rest) {
        (None, None) => one.before != other.before,
        (None, Some((ty, after))) => !fits(&one.before, &other.before, ty, after),
        (Some((ty, after)), None) => !fits(&other.before, &one.before, ty, after),
        (Some((_, after)), Some((_, other_after))) => {
            let prefixes =
                one.before.starts_with(&other.before) || other.before.starts_with(&one.before);
            let suffixes = after.ends_with(other_after) || other_after.ends_with(after);
            !(prefixes && suffixes)
        }
    }
}

/// Returns true if `<…: ty>` between `before` and `after` can print `literal`.
fn fits(literal: &str, before: &str, ty: &str, after: &str) -> bool {
    let value = literal.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
    value.is_some_and(|value| !value.is_empty() && prints(ty, value))
}

/// Returns true if a type, as it is spelled, can print this text. A type that is unknown here can print any text.
fn prints(ty: &str, text: &str) -> bool {
    macro_rules! known {
        ($($spelling:literal => $known:ty,)*) => {
            match spelled(ty) {
                $($spelling => text.parse::<$known>().is_ok_and(|value| value.to_string() == text),)*
                _ => true,
            }
        };
    }
    // `usize` may be 64 bits wide where the program runs.
    known! {
        "u8" => u8, "u16" => u16, "u32" => u32, "u64" => u64, "u128" => u128, "usize" => u64,
        "i8" => i8, "i16" => i16, "i32" => i32, "i64" => i64, "i128" => i128, "isize" => i64,
        "bool" => bool, "char" => char,
    }
}

/// Returns `u64` for `&u64`, `&'a u64` and `&mut u64`, which print alike.
fn spelled(ty: &str) -> &str {
    let Some(referent) = ty.strip_prefix('&') else {
        return ty;
    };
    let mut referent = referent.trim_start();
    if referent.starts_with('\'') {
        referent =
            referent.split_once(char::is_whitespace).map_or("", |(_, rest)| rest.trim_start());
    }
    spelled(referent.strip_prefix("mut ").unwrap_or(referent).trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(one: &str, other: &str) -> Option<Overlap> {
        let read = |text| segments(text, &Template::parse_typed(text));
        overlap(&read(one), &read(other))
    }

    #[test]
    fn names_overlap_unless_a_segment_differs() {
        for (one, other, wanted) in [
            ("a/b", "a/b", Some(Overlap::Same)),
            ("a/b", "a/c", None),
            ("a/<x: &str>", "b/<x: &str>", None),
            ("a/<x: &str>/b", "a/<y: u8>/c", None),
            ("<x: &str>/a", "b/<y: &str>", Some(Overlap::Same)),
            ("a", "a/b", Some(Overlap::Prefix)),
            ("a/<x: u8>/b", "a/<y: u8>", Some(Overlap::Extends)),
            ("a/b", "a/<x: &str>/c", Some(Overlap::Prefix)),
            ("a", "b/a", None),
            ("jobs/nightly", "jobs/<id: u64>/x", None),
            ("v<x: &str>", "v1", Some(Overlap::Same)),
            ("v<x: &str>", "w1", None),
            ("<x: &str>.x", "v.y", None),
            ("v<x: &str>", "v", None), // a value is never empty
            ("ab<x: &str>b", "ab", None),
            ("v<x: u8>", "w<y: u8>", None),
            ("v<x: u8>", "va<y: u8>", Some(Overlap::Same)),
            ("<x: u8>.a", "<y: u8>.b", None),
            ("v<x: u8>", "<y: u8>.b", Some(Overlap::Same)),
        ] {
            assert_eq!(between(one, other), wanted, "{one} {other}");
        }
    }

    #[test]
    fn literal_that_the_type_cannot_print_does_not_overlap() {
        for (ty, printed, not) in [
            ("&str", "archive", ""),
            ("OrderId", "archive", ""),
            ("Option<u8>", "archive", ""),
            ("u64", "7", "archive"),
            ("&u64", "7", "07"),
            ("&'static u64", "7", "+7"),
            ("& mut u64", "7", "-7"),
            ("u8", "255", "256"),
            ("i8", "-128", "-129"),
            ("bool", "true", "archive"),
            ("char", "x", "archive"),
            ("usize", "18446744073709551615", "18446744073709551616"),
        ] {
            let template = format!("orders/<id: {ty}>");
            let meets = |literal| between(&template, &format!("orders/{literal}")).is_some();
            assert!(meets(printed) && !meets(not), "{ty}");
        }
    }
}
