//! Template of lock names: `"orders/<id>"` → its placeholders and its mistakes. It works on text, without syn.
//!
//! In `lock_names!` a placeholder has a type, `<id: u64>`. In the attribute it names an argument, `<id>`.

use std::ops::Range;

/// Limit of a template, in bytes. The rendered name has the same limit at run time.
const MAX_LEN: usize = 1024;

/// Characters that a segment may hold in addition to ASCII letters, digits and its placeholder.
const PUNCTUATION: &str = "._~:@=+-";

/// Words that cannot name an argument or a field unless written `r#word`.
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "do", "dyn",
    "else", "enum", "extern", "false", "final", "fn", "for", "if", "impl", "in", "let", "loop",
    "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "static",
    "struct", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual",
    "where", "while", "yield",
];

/// Words that cannot be names, not even as `r#word`.
const PATH_KEYWORDS: &[&str] = &["Self", "crate", "self", "super"];

/// Template that was parsed to its end: the valid placeholders, and all mistakes.
#[derive(Debug, Default)]
pub(crate) struct Template<'a> {
    typed: bool,
    pub(crate) placeholders: Vec<Placeholder<'a>>,
    pub(crate) mistakes: Vec<Mistake>,
}

/// Placeholder: `<order.id>` is a binding and fields of it, `<id: u64>` a field of a declared name and its type.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Placeholder<'a> {
    pub(crate) head: &'a str,
    pub(crate) fields: Vec<&'a str>,
    /// Type, as it is written. Empty unless the template is typed.
    pub(crate) ty: &'a str,
    /// Bytes of the template, including the angle brackets.
    pub(crate) range: Range<usize>,
}

/// Mistake, with the bytes of the template that it concerns.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    pub(crate) range: Range<usize>,
    pub(crate) message: String,
}

impl<'a> Template<'a> {
    /// Parses the template of `#[etcd_locked("…")]`.
    pub(crate) fn parse(text: &'a str) -> Self {
        Self::default().read(text)
    }

    /// Parses a template of `lock_names!`, where placeholders have types.
    pub(crate) fn parse_typed(text: &'a str) -> Self {
        let typed = Self { typed: true, ..Self::default() };
        typed.read(text)
    }

    fn read(mut self, text: &'a str) -> Self {
        let template = &mut self;
        if text.trim_matches('/').is_empty() {
            template.refuse(0..text.len(), "empty lock name; write one, such as `orders/<id>`");
            return self;
        }
        if text.len() > MAX_LEN {
            let message = format!("lock name of {} bytes; the limit is {MAX_LEN}", text.len());
            template.refuse(0..text.len(), message);
        }
        template.scan(text);
        self
    }

    /// Returns the template without types, as it is shown.
    pub(crate) fn untyped(&self, text: &str) -> String {
        let mut shown = String::with_capacity(text.len());
        let mut at = 0;
        for placeholder in &self.placeholders {
            shown.push_str(&text[at..placeholder.range.start]);
            shown.push_str(&format!("<{}>", placeholder.head));
            at = placeholder.range.end;
        }
        shown.push_str(&text[at..]);
        shown
    }

    fn scan(&mut self, text: &'a str) {
        let mut at = 0;
        let mut in_segment: Option<&str> = None; // the placeholder this segment already has
        let mut outside: Vec<(usize, char)> = Vec::new();
        while let Some(next) = text[at..].chars().next() {
            let rest = &text[at..];
            at += match next {
                '/' => {
                    in_segment = None;
                    self.slashes(text, at)
                }
                '<' => {
                    let len = self.placeholder(rest, at);
                    if rest[..len].ends_with('>') {
                        self.one_per_segment(in_segment.replace(&rest[..len]), &rest[..len], at);
                    }
                    len
                }
                '>' => {
                    self.refuse(
                        at..at + 1,
                        format!(
                            "stray `>` in lock name; a placeholder is written `{}`",
                            self.example("id")
                        ),
                    );
                    1
                }
                '{' if braced(rest).is_some() => {
                    let name = braced(rest).unwrap_or_default();
                    let write = self.example(name);
                    let message = format!("`{{{name}}}` is not a placeholder; write `{write}`");
                    self.refuse(at..at + name.len() + 2, message);
                    name.len() + 2
                }
                _ => {
                    if !next.is_ascii_alphanumeric() && !PUNCTUATION.contains(next) {
                        outside.push((at, next));
                    }
                    next.len_utf8()
                }
            };
        }
        self.outside_alphabet(&outside);
    }

    /// Checks a run of `/` and returns its length. Only a single one between two segments is valid.
    fn slashes(&mut self, text: &str, at: usize) -> usize {
        let len = text[at..].len() - text[at..].trim_start_matches('/').len();
        let range = at..at + len;
        if at == 0 {
            let write = text.trim_start_matches('/');
            self.refuse(range, format!("leading `/` in lock name `{text}`; write `{write}`"));
        } else if at + len == text.len() {
            let write = text.trim_end_matches('/');
            self.refuse(range, format!("trailing `/` in lock name `{text}`; write `{write}`"));
        } else if len > 1 {
            let (doubled, before, after) = (&text[at..at + len], &text[..at], &text[at + len..]);
            let message =
                format!("empty segment: `{doubled}` in lock name; write `{before}/{after}`");
            self.refuse(range, message);
        }
        len
    }

    /// Parses the placeholder at the start of `rest`, which begins with `<`. Returns its length in bytes.
    fn placeholder(&mut self, rest: &'a str, at: usize) -> usize {
        let inside = &rest[1..];
        let Some(end) = self.closing(inside) else {
            let ends = |c: char| match c {
                '/' => true,
                _ => !self.typed && !is_continue(c) && c != '.',
            };
            let len = inside.find(ends).unwrap_or(inside.len());
            let write = match &inside[..len] {
                typed if self.typed && typed.contains(':') => format!("<{typed}>"),
                "" => self.example("id"),
                name => self.example(name),
            };
            self.refuse(at..at + 1 + len, format!("unclosed `<` in lock name; write `{write}`"));
            return 1 + len;
        };
        let range = at..at + end + 2;
        let content = &inside[..end];
        let (path, ty) = if self.typed { typed(content) } else { (content, "") };
        let refusal = if self.typed { typed_refusal(content, path, ty) } else { refusal(content) };
        match refusal {
            Some(message) => self.refuse(range, message),
            None => {
                let mut parts = path.split('.');
                let head = parts.next().unwrap_or(path);
                let fields = parts.collect();
                self.placeholders.push(Placeholder { head, fields, ty, range });
            }
        }
        end + 2
    }

    /// Finds the `>` that closes a placeholder, whose type may contain such brackets too.
    fn closing(&self, inside: &str) -> Option<usize> {
        let mut open = 0;
        for (at, bracket) in inside.match_indices(['<', '>']) {
            match bracket {
                "<" if !self.typed => return None,
                "<" => open += 1,
                _ if open == 0 => return Some(at),
                _ => open -= 1,
            }
        }
        None
    }

    /// Writes a placeholder of this name as an example.
    fn example(&self, name: &str) -> String {
        if self.typed { format!("<{name}: u64>") } else { format!("<{name}>") }
    }

    fn one_per_segment(&mut self, first: Option<&str>, second: &str, at: usize) {
        if let Some(first) = first {
            let message = format!(
                "two placeholders in one segment, `{first}` and `{second}`; put a `/` between them"
            );
            self.refuse(at..at + second.len(), message);
        }
    }

    /// Reports all characters outside the alphabet in one error.
    fn outside_alphabet(&mut self, outside: &[(usize, char)]) {
        let Some(&(at, first)) = outside.first() else {
            return;
        };
        let mut shown: Vec<String> = Vec::new();
        for (_, c) in outside {
            let c = format!("`{}`", c.escape_debug());
            if !shown.contains(&c) {
                shown.push(c);
            }
        }
        let message = format!(
            "{} cannot be used in a lock name; use letters, digits, `{PUNCTUATION}`, and `/` between segments",
            shown.join(", ")
        );
        self.refuse(at..at + first.len_utf8(), message);
    }

    fn refuse(&mut self, range: Range<usize>, message: impl Into<String>) {
        let message = message.into();
        self.mistakes.push(Mistake { range, message });
    }
}

/// Explains why `content` is not allowed between `<` and `>`. Returns `None` if it is.
fn refusal(content: &str) -> Option<String> {
    if content.trim().is_empty() {
        return Some(format!("empty placeholder `<{content}>`; name an argument, such as `<id>`"));
    }
    let mut parts = content.split('.');
    let head = parts.next().unwrap_or_default();
    if head != "self"
        && let Some(message) = word_refusal(content, head)
    {
        return Some(message);
    }
    parts.filter(|part| !is_index(part)).find_map(|part| word_refusal(content, part))
}

/// Splits `id: u64` into its two parts.
fn typed(content: &str) -> (&str, &str) {
    let (name, ty) = content.split_once(':').unwrap_or((content, ""));
    (name.trim(), ty.trim())
}

fn typed_refusal(content: &str, name: &str, ty: &str) -> Option<String> {
    if name.is_empty() {
        return Some(format!(
            "empty placeholder `<{content}>`; name a field and its type, such as `<id: u64>`"
        ));
    }
    if let Some(field) =
        name.rsplit_once('.').map(|(_, field)| field).filter(|_| refusal(name).is_none())
    {
        let field = if is_index(field) { "id" } else { field };
        return Some(format!(
            "`<{content}>` is a path, but a declared name has its own fields; write `<{field}: {}>`",
            if ty.is_empty() { "u64" } else { ty }
        ));
    }
    if name == "self" {
        return Some(format!(
            "`self` in `<{content}>` is a keyword; name a field, such as `<id: u64>`"
        ));
    }
    if let Some(message) = word_refusal(content, name) {
        return Some(message);
    }
    ty.is_empty().then(|| format!("`<{content}>` has no type; add one, such as `<{name}: u64>`"))
}

fn word_refusal(content: &str, word: &str) -> Option<String> {
    let bare = word.strip_prefix("r#").unwrap_or(word);
    if bare == "_" {
        return Some(format!(
            "`_` in `<{content}>` has no value; name the argument, and write that name here"
        ));
    }
    if PATH_KEYWORDS.contains(&bare) {
        return Some(format!(
            "`{word}` in `<{content}>` is a keyword; name an argument, such as `<id>`"
        ));
    }
    if KEYWORDS.contains(&word) {
        return Some(format!(
            "`{word}` in `<{content}>` is a keyword; write `r#{word}` if that is its name"
        ));
    }
    if is_ident(bare) {
        return None;
    }
    let before_type = content.split(':').next().unwrap_or_default().trim();
    Some(if before_type != content && refusal(before_type).is_none() {
        format!("`<{content}>` must be only a name; write `<{before_type}>`")
    } else {
        format!(
            "`<{content}>` is not a placeholder; write an argument, `<id>`, or a field of one, `<order.id>`"
        )
    })
}

/// Returns `id` of `{id}…`, the placeholder of other template languages.
fn braced(rest: &str) -> Option<&str> {
    let (name, _) = rest.strip_prefix('{')?.split_once('}')?;
    refusal(name).is_none().then_some(name)
}

/// Returns true for an identifier. Accepts more non-ASCII letters than Rust does; rustc then refuses the identifier.
fn is_ident(word: &str) -> bool {
    let mut chars = word.chars();
    chars.next().is_some_and(|c| c == '_' || c.is_alphabetic()) && chars.all(is_continue)
}

fn is_continue(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Returns true for a tuple index as rustc accepts it: no leading zero, fits `u32`.
fn is_index(word: &str) -> bool {
    let digits = !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    digits && (word == "0" || !word.starts_with('0')) && word.parse::<u32>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_placeholders_in_order() {
        for (text, wanted) in [
            ("jobs/nightly", ""),
            ("Az09._~:@=+-", ""),
            ("a/<b>/c/v<d>.x", "b, d"),
            ("<order.id>/<self.shard>/<pair.0>", "order.id, self.shard, pair.0"),
            ("<_id>/<r#type>/<größe>", "_id, r#type, größe"),
        ] {
            let template = Template::parse(text);
            assert_eq!(template.mistakes, [], "{text}");
            let path = |p: &Placeholder<'_>| [&[p.head], &p.fields[..]].concat().join(".");
            let paths: Vec<_> = template.placeholders.iter().map(path).collect();
            assert_eq!(paths.join(", "), wanted);
        }
    }

    #[test]
    fn declared_placeholders_have_types() {
        let text = "a/<b: u64>/v<c:Cow<'_, str>>.x/<r#type: a::B<C<D>>>";
        let template = Template::parse_typed(text);
        assert_eq!(template.mistakes, []);
        let parts: Vec<_> = template.placeholders.iter().map(|p| (p.head, p.ty)).collect();
        assert_eq!(parts, [("b", "u64"), ("c", "Cow<'_, str>"), ("r#type", "a::B<C<D>>")]);
        assert_eq!(template.untyped(text), "a/<b>/v<c>.x/<r#type>");
    }

    /// Stable compilers report a mistake at the whole literal, so no ui case shows its exact place.
    #[test]
    fn mistakes_are_located_in_the_text() {
        for (text, marked) in [
            ("//", "//"),
            ("/a", "/"),
            ("a///b", "///"),
            ("a/<id/b/<c>", "<id"),
            ("a/<", "<"),
            ("a/id>", ">"),
            ("a/<b>-<c>/<d>", "<c>"),
            ("my orders #\n#/ä", " "),
            ("{id}", "{id}"),
            ("<1d>", "<1d>"),
            ("<order.>", "<order.>"),
            ("<.id>", "<.id>"),
            ("<a/b>", "<a/b>"),
            ("<a.01>", "<a.01>"),
            ("<a.self>", "<a.self>"),
            ("<r#>", "<r#>"),
        ] {
            let mistakes = Template::parse(text).mistakes;
            let places: Vec<_> = mistakes.into_iter().map(|it| &text[it.range]).collect();
            assert_eq!(places, [marked], "{text:?}");
        }
        assert_eq!(Template::parse("/a b/<>/<c").mistakes.len(), 4);
    }
}
