//! Arguments of the attribute: `("orders/<id>", wait = "5s")` → lock names and options, each value checked.
//!
//! Reading goes on after a mistake, so that one compilation shows them all. `bind` resolves the names, as it knows the
//! function's arguments.

use proc_macro2::{TokenStream, TokenTree};
use syn::buffer::Cursor;
use syn::ext::IdentExt as _;
use syn::parse::{ParseStream, Parser as _};
use syn::token::Paren;
use syn::{Error, Expr, Ident, Lit, LitStr, Result, Token};

use crate::options::{
    Options, example, is_flag, is_name, misplaced, miswritten, replaces, unknown,
};

#[derive(Default)]
pub(crate) struct Args {
    /// In the order they were written.
    pub(crate) names: Vec<Name>,
    /// True if a name could not be read; the mistake is reported.
    pub(crate) unreadable: bool,
    pub(crate) options: Options,
    /// Options in the order they were written: word, and all its tokens.
    pub(crate) given: Vec<(String, TokenStream)>,
    /// True if the names are those of the method's `impl` block.
    pub(crate) inherited: bool,
}

#[derive(Clone)]
pub(crate) struct Name {
    pub(crate) kind: NameKind,
    /// True for a misplaced name: names come before options.
    pub(crate) after_options: bool,
}

#[derive(Clone)]
pub(crate) enum NameKind {
    Template(LitStr),
    /// Any expression that implements `LockName`; rustc checks that.
    Expression(Expr),
}

impl Args {
    pub(crate) fn parse(tokens: TokenStream, mistakes: &mut Vec<Error>) -> Args {
        let mut reader = Reader::default();
        reader.read(tokens);
        mistakes.append(&mut reader.mistakes);
        reader.args
    }

    /// Reads the arguments of a method over those of its `impl` block, which are its defaults and without mistake.
    pub(crate) fn parse_over(
        defaults: &Args,
        tokens: TokenStream,
        mistakes: &mut Vec<Error>,
    ) -> Args {
        let mut alone = Vec::new();
        let own = Args::parse(tokens.clone(), &mut alone);
        let alone: Vec<_> = alone.iter().map(Error::to_string).collect();
        let mut reader = Reader::default();
        for (word, default) in &defaults.given {
            if !own.given.iter().any(|(own, _)| replaces(own, word)) {
                reader.read(default.clone());
            }
        }
        reader.seen.clear();
        reader.read(tokens);
        mistakes.extend(reader.mistakes.into_iter().map(|mistake| {
            let message = mistake.to_string();
            if alone.contains(&message) {
                return mistake;
            }
            let message = format!("{message} (the other one stands at the `impl`)");
            Error::new(mistake.span(), message)
        }));
        let mut args = reader.args;
        if args.names.is_empty() && !args.unreadable {
            args.names.clone_from(&defaults.names);
            args.inherited = true;
        }
        args
    }

    /// Returns the names that are one word, each an expression or a mistake.
    pub(crate) fn words(&self) -> impl Iterator<Item = &Ident> {
        self.names.iter().filter_map(|name| match &name.kind {
            NameKind::Template(_) => None,
            NameKind::Expression(expression) => bare_word(expression),
        })
    }
}

/// Returns the word of an expression that is one word.
pub(crate) fn bare_word(expression: &Expr) -> Option<&Ident> {
    match expression {
        Expr::Path(path) if path.attrs.is_empty() => path.path.get_ident(),
        _ => None,
    }
}

#[derive(Default)]
struct Reader {
    args: Args,
    /// Options in the order they were written.
    seen: Vec<String>,
    mistakes: Vec<Error>,
}

impl Reader {
    fn read(&mut self, tokens: TokenStream) {
        let items = |input: ParseStream<'_>| {
            self.items(input);
            Ok(())
        };
        if let Err(error) = items.parse2(tokens) {
            self.mistakes.push(error);
        }
    }

    fn items(&mut self, input: ParseStream<'_>) {
        while !input.is_empty() {
            let (begin, seen) = (input.cursor(), self.seen.len());
            let item = if begins_option(input) {
                self.option(input)
            } else if is_bare(input, is_flag) {
                self.flag(input)
            } else {
                self.name(input)
            };
            if let Err(mistake) = item {
                self.mistakes.push(mistake);
                skip_to_comma(input);
            }
            if let Some(word) = self.seen.get(seen) {
                let tokens = between(begin, input.cursor());
                self.args.given.push((word.clone(), tokens));
            }
            if input.is_empty() || input.parse::<Token![,]>().is_ok() {
                continue;
            }
            let next =
                input.cursor().token_tree().map(|(token, _)| token.to_string()).unwrap_or_default();
            self.mistakes.push(input.error(format!("missing `,` before `{next}`")));
            if !begins_option(input) && !input.peek(LitStr) {
                skip_to_comma(input);
            }
        }
    }

    fn name(&mut self, input: ParseStream<'_>) -> Result<()> {
        if let Some(word) = misplaced_option(input) {
            return Err(Error::new(word.span(), misplaced(&word).unwrap_or_default()));
        }
        let kind = match lone_string(input)? {
            Some(template) => NameKind::Template(template),
            None => NameKind::Expression(input.parse().map_err(|error: Error| {
                self.args.unreadable = true;
                Error::new(
                    error.span(),
                    r#"expected a lock name or an option, such as `wait = "5s"`"#,
                )
            })?),
        };
        self.args.names.push(Name { kind, after_options: !self.seen.is_empty() });
        Ok(())
    }

    fn option(&mut self, input: ParseStream<'_>) -> Result<()> {
        let word = input.call(Ident::parse_any)?;
        input.parse::<Token![=]>()?;
        let refuse = |message: String| Err(Error::new(word.span(), message));
        let key = word.to_string();
        let twice = self.seen.contains(&key);
        self.seen.push(key.clone());
        let Some(write) = example(&key) else {
            self.args.unreadable |= is_name(&key);
            return refuse(unknown(&word, false));
        };
        if twice {
            return refuse(format!("option `{key}` is given twice; keep one"));
        }
        if is_flag(&key) || input.is_empty() || input.peek(Token![,]) {
            return refuse(miswritten(&key, write));
        }
        let value = input.cursor();
        self.args.options.value(&key, write, input)?;
        if key != "crate" {
            let value = between(value, input.cursor());
            self.args.options.written.push(format!("{key} = {value}"));
        }
        self.contradicts(&word)
    }

    fn flag(&mut self, input: ParseStream<'_>) -> Result<()> {
        let word = input.call(Ident::parse_any)?;
        let key = word.to_string();
        if self.seen.contains(&key) {
            let message = format!("option `{key}` is given twice; keep one");
            return Err(Error::new(word.span(), message));
        }
        self.args.options.flag(&key);
        self.seen.push(key);
        self.contradicts(&word)
    }

    fn contradicts(&self, word: &Ident) -> Result<()> {
        match self.args.options.contradiction(&word.to_string()) {
            None => Ok(()),
            Some(message) => Err(Error::new(word.span(), message)),
        }
    }
}

/// Returns true before `word =`, but not before `word ==`.
fn begins_option(input: ParseStream<'_>) -> bool {
    input.peek(Ident::peek_any)
        && input.peek2(Token![=])
        && !input.peek2(Token![==])
        && !input.peek2(Token![=>])
}

/// Returns true if the next item is one word alone that fulfils `is`.
fn is_bare(input: ParseStream<'_>, is: impl FnOnce(&str) -> bool) -> bool {
    let ahead = input.fork();
    let word = ahead.call(Ident::parse_any);
    word.is_ok_and(|word| is(&word.to_string())) && (ahead.is_empty() || ahead.peek(Token![,]))
}

/// Returns the word if it can only be meant as an option: `wait("5s")`, `wait: "5s"`. An option's bare word may be the
/// name of an argument; `bind` decides that.
fn misplaced_option(input: ParseStream<'_>) -> Option<Ident> {
    let ahead = input.fork();
    let word = ahead.call(Ident::parse_any).ok()?;
    let valued =
        ahead.peek(Paren) || ahead.peek(Token![:]) && !ahead.peek(Token![::]) || ahead.peek(Lit);
    (valued && example(&word.to_string()).is_some()).then_some(word)
}

/// Reads a string literal that is all of the next item. A comma may be missing after it.
fn lone_string(input: ParseStream<'_>) -> Result<Option<LitStr>> {
    let ahead = input.fork();
    let lone = ahead.parse::<LitStr>().is_ok()
        && (ahead.is_empty()
            || ahead.peek(Token![,])
            || ahead.peek(LitStr)
            || ahead.peek(Ident::peek_any) && !ahead.peek(Token![as]));
    if lone { input.parse().map(Some) } else { Ok(None) }
}

/// Returns the tokens from one place of the input to a later one.
fn between(mut from: Cursor<'_>, to: Cursor<'_>) -> TokenStream {
    let mut tokens = TokenStream::new();
    while from != to
        && let Some((token, after)) = from.token_tree()
    {
        tokens.extend([token]);
        from = after;
    }
    tokens
}

fn skip_to_comma(input: ParseStream<'_>) {
    while !input.is_empty() && !input.peek(Token![,]) && input.parse::<TokenTree>().is_ok() {}
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quote::quote;

    use super::*;
    use crate::value::{Given, OnHeld, OnLost, Release, Wait};

    fn read(tokens: TokenStream) -> (Args, Vec<String>) {
        let mut mistakes = Vec::new();
        let args = Args::parse(tokens, &mut mistakes);
        (args, mistakes.iter().map(Error::to_string).collect())
    }

    fn templates(args: &Args) -> Vec<String> {
        let template = |name: &Name| match &name.kind {
            NameKind::Template(text) => Some(text.value()),
            NameKind::Expression(_) => None,
        };
        args.names.iter().filter_map(template).collect()
    }

    fn good(tokens: TokenStream) -> Args {
        let (args, mistakes) = read(tokens);
        assert_eq!(mistakes, [""; 0]);
        args
    }

    fn literal<T: Copy>(value: &Option<Given<T>>) -> Option<T> {
        value.as_ref().and_then(Given::literal).copied()
    }

    fn only_mistake(tokens: TokenStream) -> String {
        let (_, mut mistakes) = read(tokens.clone());
        assert_eq!(mistakes.len(), 1, "{tokens}: {mistakes:?}");
        mistakes.remove(0)
    }

    /// Asserts the only mistake of each of these arguments. `…` stands for what comes before the text, or after it.
    fn refuses(table: &[(&str, &str)]) {
        for (args, wanted) in table {
            let message = only_mistake(args.parse().expect("tokens"));
            let text = wanted.trim_matches('…');
            let is_wanted = match (wanted.starts_with('…'), wanted.ends_with('…')) {
                (false, false) => message == text,
                (false, true) => message.starts_with(text),
                (true, false) => message.ends_with(text),
                (true, true) => message.contains(text),
            };
            assert!(is_wanted, "{args}: `{message}`, not `{wanted}`");
        }
    }

    #[test]
    fn reads_every_option() {
        let args = good(quote! {
            "orders/<id>", wait = "5s", ttl = "30s", on_held = "skip", release = "background", map_err = |a, b| f::<A, B>(a, b),
            locks = &self.locks, crate = ::other::etcd_locked, at_most = "1m", deadline = due, when = id == 5,
            on_lost = "continue", detach, reentrant,
        });
        assert_eq!(templates(&args), ["orders/<id>"]);
        assert_eq!(
            args.options.written,
            [
                r#"wait = "5s""#,
                r#"ttl = "30s""#,
                r#"on_held = "skip""#,
                r#"release = "background""#,
                "map_err = | a , b | f :: < A , B > (a , b)",
                "locks = & self . locks",
                r#"at_most = "1m""#,
                "deadline = due",
                "when = id == 5",
                r#"on_lost = "continue""#,
                "detach",
                "reentrant",
            ]
        );
        assert_eq!(literal(&args.options.wait), Some(Wait::For(Duration::from_secs(5))));
        assert_eq!(literal(&args.options.ttl), Some(Duration::from_secs(30)));
        assert_eq!(args.options.on_held, OnHeld::Skip);
        assert_eq!(args.options.release, Release::Background);
        assert_eq!(literal(&args.options.at_most), Some(Duration::from_secs(60)));
        assert_eq!(args.options.on_lost, OnLost::Continue);
        assert!(args.options.detach && args.options.reentrant);
        assert!(args.options.deadline.is_some() && args.options.when.is_some());
        assert!(args.options.map_err.is_some() && args.options.on_error.is_none());
        assert!(args.options.locks.is_some() && args.options.krate.is_some());
        assert_eq!(literal(&good(quote!("a", wait = "none")).options.wait), Some(Wait::Once));
        assert_eq!(literal(&good(quote!("a", wait = "forever")).options.wait), Some(Wait::Forever));
    }

    #[test]
    fn only_a_lone_string_is_a_template() {
        for template in [quote!("a"), quote!("a",), quote!("a", wait = "5s")] {
            assert_eq!(templates(&good(template)), ["a"]);
        }
        for expression in [
            quote!(NAME),
            quote!(Order { id }),
            quote!(format!("a")),
            quote!("a".to_owned()),
            quote!("a" + b),
            quote!((shared)),
            quote!(wait.name()),
            quote!(crate::NAME),
            quote!(nmae),
        ] {
            let args = good(expression);
            assert!(matches!(
                &args.names[..],
                [Name { kind: NameKind::Expression(_), after_options: false }]
            ));
        }
        assert!(good(quote!(wait = "5s", "a")).names[0].after_options);
        assert!(only_mistake(quote!(fn)).starts_with("expected a lock name or an option"));
    }

    #[test]
    fn refuses_shared_with_permits() {
        let args = good(quote!("a", shared, wait = "5s"));
        assert!(args.options.shared && args.options.permits.is_none());
        assert_eq!(args.options.written, ["shared", r#"wait = "5s""#]);
        assert_eq!(literal(&good(quote!("a", permits = 5)).options.permits), Some(5));
        assert_eq!(literal(&good(quote!("a", permits = 1_024)).options.permits), Some(1024));
        refuses(&[
            (r#""a", shared, permits = 5"#, "…keep one"),
            (r#""a", permits = 5, shared"#, "…keep one"),
            (r#""a", permits = config.limit, shared"#, "…keep one"),
            (r#""a", shared = true"#, "option `shared` has no value; write `shared` alone"),
            (r#""a", shared, shared"#, "option `shared` is given twice; keep one"),
            (r#""a", shared, at_least = "5s""#, "readers keep nothing locked…"),
            (r#""a", at_least = "5s", shared"#, "readers keep nothing locked…"),
            (r#""a", at_least = time, shared"#, "readers keep nothing locked…"),
            (r#""a", permits ="#, "option `permits` needs a value; write `permits = 5`"),
        ]);
        for bad in ["0", "1025", "99999999999999999999", "0u16", "-1"] {
            let of = bad.trim_end_matches("u16");
            let message = format!("`permits` of {of} is out of range; write one from 1 to 1024");
            refuses(&[(&format!("\"a\", permits = {bad}"), &message)]);
        }
        for (bad, good) in [(r#""3""#, 3), (r#""three""#, 5), ("3u8", 3)] {
            let takes = "`permits` takes an integer literal, or a `u16`";
            let message = format!("{takes}; write `permits = {good}`");
            refuses(&[(&format!("\"a\", permits = {bad}"), &message)]);
        }
    }

    #[test]
    fn limits_may_be_expressions() {
        let options = good(quote!(
            "a",
            wait = timeout,
            ttl = Duration::from_secs(n),
            at_most = self.limits.most,
            at_least = if urgent { A } else { B },
            permits = config.limit,
        ))
        .options;
        assert!(options.wait.is_some_and(|it| it.expression().is_some()));
        assert!(options.ttl.is_some_and(|it| it.expression().is_some()));
        assert!(options.at_most.is_some_and(|it| it.expression().is_some()));
        assert!(options.at_least.is_some_and(|it| it.expression().is_some()));
        assert!(options.permits.is_some_and(|it| it.expression().is_some()));
        assert_eq!(options.written[0], "wait = timeout");
        assert_eq!(options.written[4], "permits = config . limit");
        assert_eq!(literal(&good(quote!("a", permits = 5u16)).options.permits), Some(5));
        for expression in [
            quote!(wait = ("5s")),
            quote!(wait = (none)),
            quote!(ttl = forever),
            quote!(permits = LIMIT),
            quote!(permits = { 5 }),
            quote!(permits = 2 + 3),
            quote!(permits = -n),
            // Which is longer is only known when the function is called.
            quote!(at_least = "1h", at_most = most),
            quote!(wait = config.wait, deadline = due),
        ] {
            good(quote!("a", #expression));
        }
    }

    #[test]
    fn an_expression_that_is_half_typed_is_one_mistake() {
        for key in ["wait", "ttl", "at_most", "at_least", "permits"] {
            let key = Ident::new(key, proc_macro2::Span::call_site());
            for half in [
                quote!(config.),
                quote!(config.limit +),
                quote!(Duration::),
                quote!(if urgent),
                quote!(fn),
                quote!(&),
            ] {
                for args in [quote!("a", #key = #half), quote!("a", #key = #half, detach)] {
                    let begin = format!("`{key}` takes an expression, such as `{key} = ");
                    let mistake = only_mistake(args.clone());
                    assert!(mistake.starts_with(&begin), "{args}: {mistake}");
                }
            }
        }
    }

    #[test]
    fn flags_stand_alone() {
        let args = good(quote!("a", reentrant, wait = "5s"));
        assert!(args.options.reentrant && !args.options.detach);
        let no_value = "option `detach` has no value; write `detach` alone";
        refuses(&[
            (r#""a", detach = true"#, no_value),
            (r#""a", detach("x")"#, no_value),
            (r#""a", detach: true"#, no_value),
            (r#""a", detach, reentrant, detach"#, "option `detach` is given twice; keep one"),
        ]);
        assert!(good(quote!(detach, "a")).names[0].after_options);
        // An argument of that name, and expressions that begin with the word.
        for name in [quote!((detach)), quote!(detach.id), quote!(detach::NAME)] {
            assert!(!good(name).options.detach);
        }
    }

    #[test]
    fn guard_names_variables() {
        let variables = |tokens| {
            let guard = good(tokens).options.guard.expect("a guard");
            let shown = |it: &Option<Ident>| it.as_ref().map_or("_".to_owned(), Ident::to_string);
            guard.variables.iter().map(shown).collect::<Vec<_>>()
        };
        assert_eq!(variables(quote!("a", guard = order)), ["order"]);
        assert_eq!(variables(quote!("a", guard = (order))), ["order"]);
        assert_eq!(variables(quote!("a", guard = (from, _, to,), shared)), ["from", "_", "to"]);
        let variable = "`guard` takes the name of a variable; write `guard = order`, or `guard = (from, to)` for two locks";
        refuses(&[
            (r#""a", guard = "order""#, variable),
            (r#""a", guard = _"#, variable),
            (r#""a", guard = self"#, variable),
            (r#""a", "b", guard = (from to)"#, variable),
            (r#""a", guard = (5)"#, variable),
            (
                r#""a", "b", guard = (x, x)"#,
                "`x` stands for two locks; give each a name of its own",
            ),
            (r#""a", guard = a, when = b"#, "with `when` there may be no lock…"),
            (r#""a", when = b, guard = a"#, "with `when` there may be no lock…"),
        ]);
    }

    #[test]
    fn names_the_mistyped_option() {
        let needs_a_value = r#"option `wait` needs a value; write `wait = "5s"`"#;
        let nothing_to_bound = "…nothing for `deadline` to bound; keep one";
        refuses(&[
            (r#""a", wiat = "5s""#, "unknown option `wiat`; did you mean `wait`?"),
            (r#""a", colour = 5"#, "…the options are `wait`, `ttl`…"),
            (r#""a", wait ="#, needs_a_value),
            (r#""a", wait("5s")"#, needs_a_value),
            (r#""a", wait: "5s""#, needs_a_value),
            (r#""a", wait = "5s", wait = "6s""#, "option `wait` is given twice; keep one"),
            (r#""a" wait = "5s""#, "missing `,` before `wait`"),
            (r#""a", map_err = f, on_error = g"#, "…keep one"),
            (r#""a", wait = "none", deadline = due"#, nothing_to_bound),
            (r#""a", deadline = due, wait = "none""#, nothing_to_bound),
            (r#""a", map_err ="#, "…needs a value…"),
            (r#""a", map_err = fn"#, "`map_err` takes an expression…"),
        ]);
        for (option, bad, good) in [
            ("ttl", "30", "30s"),
            ("wait", "5m", "5m"),
            ("wait", "forever", "forever"),
            ("at_most", "1.5", "5s"),
        ] {
            let takes = format!("`{option}` takes a string literal, or a `Duration`");
            let message = format!("{takes}; write `{option} = {good:?}`");
            refuses(&[(&format!("\"a\", {option} = {bad}"), &message)]);
        }
    }

    #[test]
    fn an_option_by_another_name_is_answered_with_what_compiles() {
        for typed in [
            quote!(timeout = "5s"),
            quote!(max_wait = "5s"),
            quote!(lease = 30),
            quote!(expire = "30s"),
            quote!(semaphore = 3),
            quote!(limit = 3),
            quote!(read = true),
            quote!(skip = true),
        ] {
            let message = only_mistake(quote!("a", #typed));
            let (_, write) = message.split_once("; write `").expect("what to write");
            let write: TokenStream = write.trim_end_matches('`').parse().expect("tokens");
            assert_eq!(good(quote!("a", #write)).options.written.len(), 1, "{message}");
        }
        refuses(&[
            (r#"key = "a""#, "…write the name first…"),
            (r#"name = "a""#, "…write the name first…"),
            (r#""a", detahc = true"#, "…`detach`, without a value?"),
        ]);
    }

    #[test]
    fn crate_takes_an_absolute_path() {
        let args = good(quote!("a", crate = crate::vendored));
        assert!(args.options.krate.is_some());
        refuses(&[
            (r#""a", crate = other"#, "…such as `crate = ::other`"),
            (r#""a", crate = super::other"#, "…such as `crate = crate::other`"),
            (r#""a", crate = "other""#, "…write `crate = ::other`"),
        ]);
    }

    #[test]
    fn reports_all_mistakes_at_once() {
        let (args, mistakes) =
            read(quote!("a", wiat = "5s", ttl = "1s", on_held = "wait", crate = x));
        assert_eq!(mistakes.len(), 4);
        assert_eq!(args.names.len(), 1);
    }
}
