//! Text of the opened file: with its attributes or without, and with half a statement where a person would type one.

/// Marks a line in whose place a person types; the word that they type about follows.
const TYPING: &str = "// typing: ";
/// Marks code of the bare file only.
const BARE: &str = "// bare: ";
const ATTRIBUTE: &str = "#[etcd_locked(";

/// Place in a text, as the protocol counts: from 0, in UTF-16, which in ASCII is bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) character: usize,
}

/// Line in whose place a person types.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place<'a> {
    pub(crate) line: usize,
    /// Function around it.
    pub(crate) function: &'a str,
    /// Word that the statement is about.
    pub(crate) word: &'a str,
}

/// Placeholder inside the literal of an attribute.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Placeholder<'a> {
    /// What stands between `<` and `>`.
    pub(crate) path: &'a str,
    /// First function below the attribute.
    pub(crate) function: &'a str,
    /// The place of its first character.
    pub(crate) at: Position,
}

/// Returns the file without its attributes. Each line stays where it is, so places and diagnostics can be compared.
pub(crate) fn bare(text: &str) -> String {
    lines(text, |line| {
        let code = line.trim_start();
        if code.starts_with(ATTRIBUTE) {
            return String::new();
        }
        line.replacen(BARE, "", 1)
    })
}

/// Returns the text with `statement` in the place of a line, and the place behind the statement.
pub(crate) fn typed(text: &str, line: usize, statement: &str) -> (String, Position) {
    let mut at = Position { line, character: 0 };
    let mut number = 0..;
    let text = lines(text, |old| {
        if number.next() != Some(line) {
            return old.to_owned();
        }
        let indent = old.len() - old.trim_start().len();
        at.character = indent + statement.len();
        format!("{}{statement}", &old[..indent])
    });
    (text, at)
}

/// Returns the places where a person types.
pub(crate) fn places(text: &str) -> Vec<Place<'_>> {
    let mut function = "";
    let mut places = Vec::new();
    for (line, code) in text.lines().enumerate() {
        if let Some(name) = function_name(code) {
            function = name;
        }
        if let Some(word) = code.trim_start().strip_prefix(TYPING) {
            places.push(Place { line, function, word });
        }
    }
    places
}

/// Returns the places of all attributes.
pub(crate) fn attributes(text: &str) -> Vec<Position> {
    let at = |(line, code): (usize, &str)| {
        let character = code.find(ATTRIBUTE)?;
        // Behind `#[`, on the attribute's own name.
        Some(Position { line, character: character + 2 })
    };
    text.lines().enumerate().filter_map(at).collect()
}

/// Returns the placeholders of all templates. An attribute stands on one line.
pub(crate) fn placeholders(text: &str) -> Vec<Placeholder<'_>> {
    let lines: Vec<_> = text.lines().collect();
    let mut found = Vec::new();
    for Position { line, .. } in attributes(text) {
        let (code, below) = (lines[line], &lines[line..]);
        let function = below.iter().find_map(|line| function_name(line));
        for (open, _) in code.match_indices('<') {
            let in_literal = code[..open].matches('"').count() % 2 == 1;
            let path = code[open + 1..].split_once('>');
            if in_literal && let Some((path, _)) = path {
                let at = Position { line, character: open + 1 };
                found.push(Placeholder { path, function: function.unwrap_or_default(), at });
            }
        }
    }
    found
}

/// Returns the function on a line: the last one whose signature has begun by then.
pub(crate) fn function_at(text: &str, line: usize) -> &str {
    let above = text.lines().take(line + 1);
    above.filter_map(function_name).last().unwrap_or_default()
}

/// Returns the word that begins at a place.
pub(crate) fn word_at(text: &str, at: Position) -> &str {
    let line = text.lines().nth(at.line).unwrap_or_default();
    let rest = line.get(at.character..).unwrap_or_default();
    let end = rest.find(|c: char| !is_of_word(c)).unwrap_or(rest.len());
    &rest[..end]
}

/// Returns the name of the function whose signature begins on this line.
fn function_name(line: &str) -> Option<&str> {
    let code = line.trim_start();
    let (before, after) = code.split_once("fn ")?;
    let is_signature = before.split_whitespace().all(|word| ["pub", "async"].contains(&word));
    let end = after.find(|c: char| !is_of_word(c))?;
    (is_signature && end > 0).then(|| &after[..end])
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn lines(text: &str, line: impl FnMut(&str) -> String) -> String {
    let mut lines: Vec<String> = text.lines().map(line).collect();
    lines.push(String::new());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "#[etcd_locked(\"orders/<id>/<order.sku>\", wait = \"5s\")]\n\
                        pub async fn ship<T>(id: u64) {\n    // bare: let held = 1;\n    // typing: order\n    // done\n}\n";

    #[test]
    fn bare_text_keeps_its_lines() {
        let wanted = "\npub async fn ship<T>(id: u64) {\n    let held = 1;\n    // typing: order\n    // done\n}\n";
        assert_eq!(bare(TEXT), wanted);
    }

    #[test]
    fn statements_are_typed_in_their_places() {
        let place = Place { line: 3, function: "ship", word: "order" };
        assert_eq!(places(TEXT), [place]);
        let (text, at) = typed(TEXT, 3, "order.");
        assert_eq!(text, TEXT.replace("// typing: order", "order."));
        let end = Position { line: 3, character: 10 };
        assert_eq!(at, end);
    }

    #[test]
    fn placeholders_are_found_in_literals() {
        let found: Vec<_> =
            placeholders(TEXT).iter().map(|it| (it.path, it.function, it.at.character)).collect();
        assert_eq!(found, [("id", "ship", 23), ("order.sku", "ship", 28)]);
        assert_eq!(function_at(TEXT, 0), "");
        assert_eq!(function_at(TEXT, 3), "ship");
        assert_eq!(word_at(TEXT, placeholders(TEXT)[1].at), "order");
    }
}
