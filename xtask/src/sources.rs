//! apt source lists, in both of their forms, with another suite in the place of the current one.

use std::path::Path;

/// Form of a source list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// `deb [options] uri suite component…`, one source a line.
    Lines,
    /// Stanzas of `Field: value`.
    Stanzas,
}

impl Form {
    /// Returns the form that a file of this name has to apt; `None` for a file that apt ignores.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "list" => Some(Self::Lines),
            "sources" => Some(Self::Stanzas),
            _ => None,
        }
    }

    pub(crate) fn extension(self) -> &'static str {
        match self {
            Self::Lines => "list",
            Self::Stanzas => "sources",
        }
    }
}

/// Returns the binary sources of `text` that name one of the suites `current`, with `suite` in its place.
///
/// All other sources are dropped: updates, security and third parties have no such suite.
pub(crate) fn with_suite(text: &str, form: Form, current: &[&str], suite: &str) -> String {
    match form {
        Form::Lines => text
            .lines()
            .filter_map(|line| line_with_suite(line, current, suite))
            .collect(),
        Form::Stanzas => stanzas(text)
            .filter_map(|stanza| stanza_with_suite(&stanza, current, suite))
            .collect(),
    }
}

fn line_with_suite(line: &str, current: &[&str], suite: &str) -> Option<String> {
    let rest = line
        .trim()
        .strip_prefix("deb")?
        .strip_prefix([' ', '\t'])?
        .trim_start();
    let (options, source) = match rest.strip_prefix('[') {
        Some(rest) => {
            let (options, source) = rest.split_once(']')?;
            (format!("[{options}] "), source)
        }
        None => (String::new(), rest),
    };
    let source = source.split('#').next()?;
    let mut words = source.split_whitespace();
    let (uri, old) = (words.next()?, words.next()?);
    let components: Vec<_> = words.collect();
    current
        .contains(&old)
        .then(|| format!("deb {options}{uri} {suite} {}\n", components.join(" ")))
}

fn stanzas(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let stanzas: Vec<_> = lines
        .split(|line| line.trim().is_empty())
        .map(<[&str]>::to_vec)
        .collect();
    stanzas.into_iter().filter(|stanza| !stanza.is_empty())
}

fn stanza_with_suite(stanza: &[&str], current: &[&str], suite: &str) -> Option<String> {
    let mut text = String::new();
    let mut named = false;
    let mut field = String::new();
    for line in stanza {
        let value = if line.starts_with([' ', '\t']) {
            line
        } else {
            let (name, value) = line.split_once(':')?;
            field = name.to_ascii_lowercase();
            value
        };
        match field.as_str() {
            "types" => {}
            "suites" => named |= value.split_whitespace().any(|word| current.contains(&word)),
            "enabled" if matches!(value.trim(), "no" | "false" | "off" | "0") => return None,
            _ => {
                text += line;
                text.push('\n');
            }
        }
    }
    named.then(|| format!("Types: deb\nSuites: {suite}\n{text}\n"))
}

#[cfg(test)]
mod tests {
    use super::{Form, with_suite};

    #[test]
    fn replaces_the_suite_of_a_line() {
        let list = "# ours\n\
            deb [arch=amd64 signed-by=/k.gpg] http://mirror/debian bookworm main contrib # near\n\
            deb http://mirror/debian bookworm-updates main\n\
            deb-src http://mirror/debian bookworm main\n\
            deb http://other/debian nodistro main\n";
        assert_eq!(
            with_suite(list, Form::Lines, &["bookworm"], "trixie"),
            "deb [arch=amd64 signed-by=/k.gpg] http://mirror/debian trixie main contrib\n"
        );
    }

    #[test]
    fn replaces_the_suites_of_a_stanza() {
        let sources = "Types: deb deb-src\n# a snapshot\nURIs: http://mirror/debian\nSuites: bookworm bookworm-updates\n\
            Components: main\nSigned-By:\n -----BEGIN PGP-----\n .\n bookworm\n\n\
            Types: deb\nURIs: http://mirror/debian-security\nSuites: bookworm-security\nComponents: main\n\n\
            Enabled: no\nTypes: deb\nURIs: http://off/debian\nSuites: bookworm\nComponents: main\n";
        assert_eq!(
            with_suite(sources, Form::Stanzas, &["bookworm"], "sid"),
            "Types: deb\nSuites: sid\nURIs: http://mirror/debian\nComponents: main\nSigned-By:\n -----BEGIN PGP-----\n .\n bookworm\n\n"
        );
    }

    #[test]
    fn drops_sources_of_other_suites() {
        assert_eq!(
            with_suite(
                "deb http://mirror/ubuntu noble main\n",
                Form::Lines,
                &["bookworm"],
                "sid"
            ),
            ""
        );
        assert_eq!(
            with_suite("no stanza at all", Form::Stanzas, &["bookworm"], "sid"),
            ""
        );
    }
}
