//! Fuzz target for templates: parsing and comparing two texts never panics, and their order does not matter.
#![no_main]

use libfuzzer_sys::fuzz_target;

// A proc-macro crate cannot be linked here.
#[allow(dead_code)]
#[path = "../../../macros/src/overlap.rs"]
mod overlap;
#[allow(dead_code)]
#[path = "../../../macros/src/template.rs"]
mod template;

use overlap::{overlap, segments};
use template::Template;

fuzz_target!(|texts: (&str, &str)| {
    let read = |text| {
        for mistake in Template::parse(text).mistakes {
            assert!(text.get(mistake.range).is_some(), "inside the text");
        }
        let template = Template::parse_typed(text);
        for mistake in &template.mistakes {
            assert!(text.get(mistake.range.clone()).is_some(), "inside the text");
        }
        template.mistakes.is_empty().then(|| {
            let untyped = template.untyped(text);
            assert!(Template::parse(&untyped).mistakes.is_empty(), "{untyped}");
            segments(text, &template)
        })
    };
    if let (Some(one), Some(other)) = (read(texts.0), read(texts.1)) {
        assert_eq!(overlap(&one, &other).is_some(), overlap(&other, &one).is_some());
        assert!(overlap(&one, &one).is_some(), "a name is itself");
    }
});
