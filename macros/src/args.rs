//! `("orders/<id>", wait = "5s")` → one name and its options, each value checked. Reading goes on after a
//! mistake, so that one compilation shows them all.

use std::time::Duration;

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::ext::IdentExt as _;
use syn::parse::{ParseStream, Parser as _};
use syn::{Error, Expr, Ident, LitStr, Path, Result, Token};

use crate::typo::nearest;
use crate::value::{OnHeld, Wait, absolute_path, expression, on_held, string, ttl, wait};

/// Every option, and how it is written.
const OPTIONS: &[(&str, &str)] = &[
    ("wait", r#"wait = "5s""#),
    ("ttl", r#"ttl = "30s""#),
    ("on_held", r#"on_held = "skip""#),
    ("map_err", "map_err = AppError::from"),
    ("on_error", "on_error = |error| error.into_response()"),
    ("locks", "locks = &self.locks"),
    ("crate", "crate = ::etcd_locked"),
];

#[derive(Default)]
pub(crate) struct Args {
    /// `None` only if a mistake was reported.
    pub(crate) name: Option<LitStr>,
    pub(crate) options: Options,
}

#[derive(Default)]
pub(crate) struct Options {
    pub(crate) wait: Option<Wait>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) on_held: OnHeld,
    pub(crate) map_err: Option<Expr>,
    pub(crate) on_error: Option<Expr>,
    pub(crate) locks: Option<Expr>,
    pub(crate) krate: Option<Path>,
}

impl Args {
    pub(crate) fn parse(tokens: TokenStream, mistakes: &mut Vec<Error>) -> Args {
        let mut reader = Reader::default();
        let read = |input: ParseStream<'_>| {
            reader.items(input);
            Ok(())
        };
        if let Err(error) = read.parse2(tokens) {
            reader.mistakes.push(error);
        }
        if !reader.named {
            let message =
                r#"missing lock name; begin with one, such as `#[etcd_locked("orders/<id>")]`"#;
            reader.mistakes.push(Error::new(Span::call_site(), message));
        }
        mistakes.append(&mut reader.mistakes);
        reader.args
    }
}

#[derive(Default)]
struct Reader {
    args: Args,
    /// A name was written, be it a good one or not.
    named: bool,
    /// Options in the order they were written.
    seen: Vec<String>,
    mistakes: Vec<Error>,
}

impl Reader {
    fn items(&mut self, input: ParseStream<'_>) {
        while !input.is_empty() {
            let item = if begins_option(input) {
                self.option(input)
            } else {
                self.name(input)
            };
            if let Err(mistake) = item {
                self.mistakes.push(mistake);
                skip_to_comma(input);
            }
            if input.is_empty() || input.parse::<Token![,]>().is_ok() {
                continue;
            }
            let next = input
                .cursor()
                .token_tree()
                .map(|(token, _)| token.to_string())
                .unwrap_or_default();
            self.mistakes
                .push(input.error(format!("missing `,` before `{next}`")));
            if !begins_option(input) && !input.peek(LitStr) {
                skip_to_comma(input);
            }
        }
    }

    fn name(&mut self, input: ParseStream<'_>) -> Result<()> {
        if let Some(word) = misplaced_option(input) {
            let message = match example(&word.unraw().to_string()) {
                Some(write) => format!("option `{word}` needs a value; write `{write}`"),
                None => unknown(&word),
            };
            return Err(Error::new(word.span(), message));
        }
        let Some(name) = lone_string(input)? else {
            let named = std::mem::replace(&mut self.named, true);
            let name: Expr = input.parse().map_err(|error| {
                Error::new(
                    error.span(),
                    r#"expected a lock name or an option, such as `wait = "5s"`"#,
                )
            })?;
            let message = if named {
                "neither an option nor a lock name; this version locks one name, a string literal"
            } else {
                r#"only string literals name locks in this version; write a template, such as `"orders/<id>"`"#
            };
            return Err(Error::new_spanned(name, message));
        };
        let shown = name.token().to_string();
        let span = name.span();
        if std::mem::replace(&mut self.named, true) {
            let message =
                format!("second lock name; this version locks one name, so remove `{shown}`");
            return Err(Error::new(span, message));
        }
        self.args.name = Some(name);
        if self.seen.is_empty() {
            return Ok(());
        }
        Err(Error::new(
            span,
            format!("lock names come before the options; move `{shown}` to the front"),
        ))
    }

    fn option(&mut self, input: ParseStream<'_>) -> Result<()> {
        let word = input.call(Ident::parse_any)?;
        input.parse::<Token![=]>()?;
        let refuse = |message: String| Err(Error::new(word.span(), message));
        let key = word.to_string();
        let twice = self.seen.contains(&key);
        self.seen.push(key.clone());
        let Some(write) = example(&key) else {
            return refuse(unknown(&word));
        };
        if twice {
            return refuse(format!("option `{key}` is given twice; keep one"));
        }
        if input.is_empty() || input.peek(Token![,]) {
            return refuse(format!("option `{key}` needs a value; write `{write}`"));
        }
        let options = &mut self.args.options;
        match key.as_str() {
            "wait" => options.wait = Some(wait(&string(input, &key, write)?)?),
            "ttl" => options.ttl = Some(ttl(&string(input, &key, write)?)?),
            "on_held" => options.on_held = on_held(&string(input, &key, write)?)?,
            "map_err" => options.map_err = Some(expression(input, &key, write)?),
            "on_error" => options.on_error = Some(expression(input, &key, write)?),
            "locks" => options.locks = Some(expression(input, &key, write)?),
            _ => options.krate = Some(absolute_path(input)?),
        }
        let converters = ["map_err", "on_error"];
        let seen = |option: &str| self.seen.iter().any(|seen| seen == option);
        if converters.contains(&key.as_str()) && converters.into_iter().all(seen) {
            return refuse("`map_err` and `on_error` both convert the error; keep one".to_owned());
        }
        Ok(())
    }
}

/// `word =`, and not `word ==`.
fn begins_option(input: ParseStream<'_>) -> bool {
    input.peek(Ident::peek_any)
        && input.peek2(Token![=])
        && !input.peek2(Token![==])
        && !input.peek2(Token![=>])
}

/// An option without `=`: `wait`, `wait("5s")`, `wait: "5s"`, or a lone word that is nearly one.
fn misplaced_option(input: ParseStream<'_>) -> Option<Ident> {
    let ahead = input.fork();
    let word = ahead.call(Ident::parse_any).ok()?;
    let key = word.to_string();
    let alone = ahead.is_empty() || ahead.peek(Token![,]);
    let valued = !ahead.peek(Token![::]) && !ahead.peek(Token![.]) && example(&key).is_some();
    (valued || alone && nearest(&key, option_words()).is_some()).then_some(word)
}

/// A string literal that is all of the next item (or that only a missing comma ties to the one after).
fn lone_string(input: ParseStream<'_>) -> Result<Option<LitStr>> {
    let ahead = input.fork();
    let lone = ahead.parse::<LitStr>().is_ok()
        && (ahead.is_empty()
            || ahead.peek(Token![,])
            || ahead.peek(LitStr)
            || ahead.peek(Ident::peek_any) && !ahead.peek(Token![as]));
    if lone {
        input.parse().map(Some)
    } else {
        Ok(None)
    }
}

fn skip_to_comma(input: ParseStream<'_>) {
    while !input.is_empty() && !input.peek(Token![,]) && input.parse::<TokenTree>().is_ok() {}
}

fn option_words() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().map(|(word, _)| *word)
}

fn example(word: &str) -> Option<&'static str> {
    OPTIONS
        .iter()
        .find(|(option, _)| *option == word)
        .map(|(_, write)| *write)
}

fn unknown(word: &Ident) -> String {
    match nearest(&word.to_string(), option_words()) {
        Some(near) => format!("unknown option `{word}`; did you mean `{near}`?"),
        None => format!(
            "unknown option `{word}`; the options are `{}`",
            option_words().collect::<Vec<_>>().join("`, `")
        ),
    }
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::*;

    fn read(tokens: TokenStream) -> (Args, Vec<String>) {
        let mut mistakes = Vec::new();
        let args = Args::parse(tokens, &mut mistakes);
        (args, mistakes.iter().map(Error::to_string).collect())
    }

    fn good(tokens: TokenStream) -> Args {
        let (args, mistakes) = read(tokens);
        assert_eq!(mistakes, [""; 0]);
        args
    }

    fn the_mistake(tokens: TokenStream) -> String {
        let (_, mut mistakes) = read(tokens.clone());
        assert_eq!(mistakes.len(), 1, "{tokens}: {mistakes:?}");
        mistakes.remove(0)
    }

    #[test]
    fn every_option_is_read() {
        let args = good(quote! {
            "orders/<id>", wait = "5s", ttl = "30s", on_held = "skip", map_err = |a, b| f::<A, B>(a, b),
            locks = &self.locks, crate = ::other::etcd_locked,
        });
        assert_eq!(
            args.name.map(|name| name.value()).as_deref(),
            Some("orders/<id>")
        );
        assert_eq!(args.options.wait, Some(Wait::For(Duration::from_secs(5))));
        assert_eq!(args.options.ttl, Some(Duration::from_secs(30)));
        assert_eq!(args.options.on_held, OnHeld::Skip);
        assert!(args.options.map_err.is_some() && args.options.on_error.is_none());
        assert!(args.options.locks.is_some() && args.options.krate.is_some());
        assert_eq!(
            good(quote!("a", wait = "none")).options.wait,
            Some(Wait::Once)
        );
        assert_eq!(
            good(quote!("a", wait = "forever")).options.wait,
            Some(Wait::Forever)
        );
    }

    #[test]
    fn the_name_comes_first_and_once() {
        assert!(the_mistake(quote!()).starts_with("missing lock name"));
        assert!(the_mistake(quote!(wait = "5s")).starts_with("missing lock name"));
        assert!(the_mistake(quote!(wait = "5s", "a")).contains(r#"move `"a"` to the front"#));
        assert!(the_mistake(quote!("a", "b")).contains(r#"remove `"b"`"#));
        for other in [
            quote!(NAME),
            quote!(format!("a")),
            quote!(5),
            quote!("a".to_owned()),
            quote!("a" + b),
        ] {
            assert!(the_mistake(other).starts_with("only string literals name locks"));
        }
    }

    #[test]
    fn mistyped_options_are_named() {
        assert_eq!(
            the_mistake(quote!("a", wiat = "5s")),
            "unknown option `wiat`; did you mean `wait`?"
        );
        assert_eq!(
            the_mistake(quote!("a", wiat)),
            "unknown option `wiat`; did you mean `wait`?"
        );
        assert!(the_mistake(quote!("a", permits = 5)).contains("the options are `wait`, `ttl`"));
        assert_eq!(
            the_mistake(quote!("a", ttl = 30)),
            r#"`ttl` takes a string literal; write `ttl = "30s"`"#
        );
        for valueless in [
            quote!("a", wait),
            quote!("a", wait =),
            quote!("a", wait("5s")),
            quote!("a", wait: "5s"),
        ] {
            assert_eq!(
                the_mistake(valueless),
                r#"option `wait` needs a value; write `wait = "5s"`"#
            );
        }
        assert_eq!(
            the_mistake(quote!("a", wait = "5s", wait = "6s")),
            "option `wait` is given twice; keep one"
        );
        assert_eq!(
            the_mistake(quote!("a" wait = "5s")),
            "missing `,` before `wait`"
        );
        assert!(the_mistake(quote!("a", map_err = f, on_error = g)).ends_with("keep one"));
        assert!(the_mistake(quote!("a", map_err = )).contains("needs a value"));
        assert!(
            the_mistake(quote!("a", map_err = fn)).starts_with("`map_err` takes an expression")
        );
    }

    #[test]
    fn crate_is_an_absolute_path() {
        assert!(
            good(quote!("a", crate = crate::vendored))
                .options
                .krate
                .is_some()
        );
        assert!(the_mistake(quote!("a", crate = other)).ends_with("such as `crate = ::other`"));
        assert!(
            the_mistake(quote!("a", crate = super::other))
                .ends_with("such as `crate = crate::other`")
        );
        assert!(the_mistake(quote!("a", crate = "other")).ends_with("write `crate = ::other`"));
    }

    #[test]
    fn all_mistakes_are_reported_at_once() {
        let (args, mistakes) = read(quote!(
            "a",
            wiat = "5s",
            ttl = "1s",
            on_held = "wait",
            crate = x
        ));
        assert_eq!(mistakes.len(), 4);
        assert!(args.name.is_some());
    }
}
