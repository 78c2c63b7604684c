//! Templates of every lock site of the binary, collected by the linker.

use std::fmt::{self, Display};
use std::path::Path;

use linkme::distributed_slice;

/// A place of this binary that takes a lock: an annotated function, or a name declared by `lock_names!`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Template {
    /// The name as written, such as `orders/<id>`; a declared name includes types, `orders/<id: u64>`.
    pub template: &'static str,
    /// Module path and name of the function, or of the declared name's type.
    pub function: &'static str,
    /// The source file, as it was passed to the compiler.
    pub file: &'static str,
    /// The line of the attribute, or of the call of the `macro_rules!` macro that contains it.
    pub line: u32,
    /// The attribute's options as written, such as `wait = "5s", ttl = "30s"`; empty if there are none.
    pub options: &'static str,
    /// The number of `permits`, if it is a literal.
    permits: Option<u16>,
    /// True if `lock_names!` declares the name.
    declared: bool,
}

impl Template {
    /// Creates a declared name. Only `__register_template!` calls this and the functions below.
    #[doc(hidden)]
    #[must_use]
    pub const fn __new(
        template: &'static str,
        function: &'static str,
        file: &'static str,
        line: u32,
    ) -> Self {
        Self { template, function, file, line, options: "", permits: None, declared: true }
    }

    /// Marks it as a string in an attribute with these options.
    #[doc(hidden)]
    #[must_use]
    pub const fn __written(mut self, options: &'static str) -> Self {
        self.options = options;
        self.declared = false;
        self
    }

    #[doc(hidden)]
    #[must_use]
    pub const fn __of(mut self, permits: u16) -> Self {
        self.permits = Some(permits);
        self
    }
}

/// `src/shop.rs:12: orders/<id> (shop::ship)`
impl Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { template, function, file, line, .. } = self;
        write!(f, "{file}:{line}: {template} ({function})")
    }
}

/// Slice to which expansions add their templates.
#[doc(hidden)]
#[distributed_slice]
pub static __TEMPLATES: [Template];

/// Returns every lock site of this binary and all its crates, called or not: functions annotated with a template, and declared names. A
/// function annotated with a declared name is listed by that name. Sites are sorted by template, then by place.
///
/// Use it for a check at start-up, for documentation, or to find out which prefixes of etcd the service's user needs.
///
/// ```
/// for site in etcd_locked::templates() {
///     println!("{site} {}", site.options); // src/main.rs:12: orders/<id> (shop::ship) wait = "5s"
/// }
/// ```
///
/// Run-time names ([`lock`](crate::lock()) with a `String`) are not listed. Functions in a crate that the binary does not link, or that
/// nothing refers to, are not part of the binary.
pub fn templates() -> impl Iterator<Item = &'static Template> {
    let mut sites: Vec<_> = __TEMPLATES.iter().collect();
    sites.sort_unstable_by_key(|site| {
        (site.template, site.file, site.line, site.function, site.options)
    });
    sites.into_iter()
}

/// Panics if two templates of this binary can be the same lock by accident, if one is a path prefix of the other, or if two functions
/// with the same template use different `permits`.
///
/// Call it in a separate test in each binary; [`templates`] says what is compared. Next to `orders/<id>`, the template
/// `order-lines/<order>/<line>` passes, and `orders/<order>/<line>` does not.
///
/// Templates overlap by the rules of [`lock_names!`](macro@crate::lock_names#names-that-overlap). Templates that differ only in the names
/// of placeholders, such as `orders/<id>` and `orders/<order.id>`, mean the same lock and are allowed.
///
/// Functions with `permits = 5` and `permits = 8` for one template fail too, because each would count by its own number. Numbers that are
/// expressions, and those of declared names, are not compared. Processes of different versions may differ, as in a rolling deployment.
///
/// # Panics
/// If there is such a pair. The message names both sites of each.
#[track_caller]
pub fn assert_no_overlaps() {
    let mut found = Vec::new();
    for (mistake, pairs) in [
        ("lock names overlap; give them different literal text", overlaps(templates())),
        (
            "functions of one lock name differ in `permits`; use one constant for all of them",
            disagreements(templates()),
        ),
    ] {
        if !pairs.is_empty() {
            found.push(format!("{mistake}:\n{}", pairs.join("\n")));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Panics if an attribute in this workspace has its lock name as a string instead of from [`lock_names!`](crate::lock_names!).
///
/// It is for teams that want all names, with the types of their values, in one place. Call it in a separate test in each binary.
///
/// Cargo compiles packages outside the workspace, such as those from a registry, by absolute paths. Their templates are not checked,
/// because other people own them. Run-time names are not known here.
///
/// # Panics
/// If there is such a string. The message lists each one with its file and line.
#[track_caller]
pub fn assert_all_declared() {
    let found = undeclared(templates());
    assert!(
        found.is_empty(),
        "lock names are written as strings; declare them by `lock_names!`:\n{}",
        found.join("\n")
    );
}

/// Returns a line for each template of this workspace that is not a declared name.
fn undeclared(sites: impl Iterator<Item = &'static Template>) -> Vec<String> {
    let strings = sites.filter(|site| !site.declared && Path::new(site.file).is_relative());
    strings.map(|site| format!("  {site}")).collect()
}

/// Returns a message for each site whose literal `permits` differ from those of the first site of its template.
fn disagreements(sites: impl Iterator<Item = &'static Template>) -> Vec<String> {
    let mut firsts: Vec<(&Template, u16, Vec<Segment>)> = Vec::new();
    let mut messages = Vec::new();
    for site in sites {
        let Some(permits) = site.permits else { continue };
        let segments = segments(site.template);
        let same = firsts.iter().find(|(_, _, of)| means(of, &segments));
        match same {
            None => firsts.push((site, permits, segments)),
            Some((first, of, _)) if *of != permits => messages.push(format!(
                "  {first}\n  {site}\n    `permits = {of}` and `permits = {permits}`"
            )),
            Some(_) => {}
        }
    }
    messages
}

/// Returns a message for each pair of overlapping templates, with the first site of each.
fn overlaps(sites: impl Iterator<Item = &'static Template>) -> Vec<String> {
    let mut families: Vec<(&Template, Vec<Segment>)> =
        sites.map(|site| (site, segments(site.template))).collect();
    families.sort_by(|(_, one), (_, other)| one.cmp(other));
    families.dedup_by(|(_, one), (_, other)| one == other);
    families.sort_by_key(|(site, _)| site.template);
    let mut messages = Vec::new();
    for (n, (first, one)) in families.iter().enumerate() {
        for (second, other) in &families[n + 1..] {
            if means(one, other) || one.iter().zip(other).any(|(a, b)| a.differs(b)) {
                continue;
            }
            let how = match one.len() == other.len() {
                true => "both can be the same name",
                false => "one can be a path-prefix of the other",
            };
            messages.push(format!("  {first}\n  {second}\n    {how}"));
        }
    }
    messages
}

/// Text between two slashes: literal text, or text around a placeholder.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Segment {
    before: &'static str,
    /// The placeholder's type, empty if it is not written, and the text after it. The placeholder's name does not matter.
    rest: Option<(&'static str, &'static str)>,
}

fn segments(template: &'static str) -> Vec<Segment> {
    // The type in a placeholder is the user's text, and may contain a `/`.
    let mut depth = 0_usize;
    let divides = |c| {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == '/' && depth == 0
    };
    template.split(divides).map(Segment::parse).collect()
}

/// Returns true if two templates were meant to be the same: they differ at most in the names and types of placeholders.
fn means(one: &[Segment], other: &[Segment]) -> bool {
    let text = |it: &Segment| (it.before, it.rest.map(|(_, after)| after));
    one.iter().map(text).eq(other.iter().map(text))
}

impl Segment {
    fn parse(text: &'static str) -> Self {
        let placeholder = text.split_once('<').and_then(|(before, rest)| {
            let (inner, after) = rest.rsplit_once('>')?;
            let ty = inner.split_once(':').map_or("", |(_, ty)| ty);
            Some(Self { before, rest: Some((ty, after)) })
        });
        placeholder.unwrap_or(Self { before: text, rest: None })
    }

    /// Returns true if no text can be both.
    fn differs(&self, other: &Self) -> bool {
        let (before, other_before) = (self.before, other.before);
        match (self.rest, other.rest) {
            (None, None) => before != other_before,
            (None, Some(_)) => other.differs(self),
            (Some((ty, after)), None) => {
                let value = other_before.strip_prefix(before);
                let value = value.and_then(|rest| rest.strip_suffix(after));
                value.is_none_or(|value| !can_be(ty, value))
            }
            (Some((_, after)), Some((_, other_after))) => {
                let begin_alike =
                    before.starts_with(other_before) || other_before.starts_with(before);
                let end_alike = after.ends_with(other_after) || other_after.ends_with(after);
                !(begin_alike && end_alike)
            }
        }
    }
}

/// Returns true if a value of this type, as it is spelled, can be this literal text, which needs no escaping.
fn can_be(ty: &str, text: &str) -> bool {
    let spelled: String = ty.split_whitespace().collect();
    match spelled.trim_start_matches('&') {
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i8" | "i16" | "i32" | "i64" | "i128"
        | "isize" => {
            let digits = text.strip_prefix('-').unwrap_or(text);
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        }
        "bool" => text == "true" || text == "false",
        "char" => text.len() == 1,
        _ => !text.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(template: &'static str) -> Template {
        Template::__new(template, "shop::f", "shop.rs", 7)
    }

    fn leaked<const N: usize>(sites: [Template; N]) -> impl Iterator<Item = &'static Template> {
        sites.map(|site| &*Box::leak(Box::new(site))).into_iter()
    }

    #[test]
    fn templates_overlap_unless_a_segment_differs() {
        for (one, other, wanted) in [
            ("orders/<id>", "orders/archive", true),
            ("orders/<id>", "<kind>/<id>", true),
            ("orders/<id>", "orders/o-<id>", true),
            ("a<x>", "<y>b", true),
            ("a<x>c", "ab<y>", true),
            ("orders/<id: u64>", "orders/7", true),
            ("orders/<id: &str>", "orders/archive", true),
            ("orders/<id: bool>", "orders/true", true),
            ("orders/<id: char>", "orders/x", true),
            ("orders/<id: u64>", "orders/<id>-1", true),
            // One is a path-prefix of the other.
            ("orders", "orders/<id>", true),
            ("orders/<id>", "orders/<id>/lines/<n>", true),
            ("<any>", "orders/archive/old", true),
            ("orders/<id>", "accounts/<id>", false),
            ("orders/o-<id>", "orders/a-<id>", false),
            ("orders/<id>-o", "orders/<id>-a", false),
            ("orders/o<id>", "orders/o", false), // a value is never empty
            ("orders/<id: u64>", "orders/archive", false),
            ("orders/<id: & i8>", "orders/1e5", false),
            ("orders/<id: bool>", "orders/yes", false),
            ("orders/<id: char>", "orders/xy", false),
            ("order", "orders/<id>", false),
            ("a/<x>/c", "a/<x>/d/<y>", false),
            // They mean the same lock.
            ("orders/<id>", "orders/<order.id>", false),
            ("orders/<id>", "orders/<id>", false),
            ("orders/<id>", "orders/<id: u64>", false),
            ("orders/<id: Cow<'a, str>>/x", "orders/<it>/x", false),
        ] {
            for pair in [[one, other], [other, one]] {
                let found = overlaps(leaked(pair.map(site)));
                assert_eq!(!found.is_empty(), wanted, "{pair:?}: {found:?}");
            }
        }
    }

    #[test]
    fn numbers_of_permits_are_compared_within_a_template() {
        let sites = [
            site("smtp/<region>").__of(5),
            site("smtp/<it>"),
            site("imap/<it>").__of(8),
            site("smtp/<it>").__of(5),
        ];
        assert_eq!(disagreements(leaked(sites)), [""; 0]);
    }

    #[test]
    fn strings_of_this_workspace_are_undeclared() {
        let of_registry = Template { file: "/registry/shop.rs", ..site("orders/<id>") };
        let sites = [site("jobs"), site("orders/<id>").__written(""), of_registry.__written("")];
        assert_eq!(undeclared(leaked(sites)), ["  shop.rs:7: orders/<id> (shop::f)"]);
    }
}
