//! Arguments of the attribute: `("orders/<id>", wait = "5s")` → lock names and options, each value checked.
//!
//! Parsing continues after a mistake, so that one compilation shows them all. `bind` resolves the names, because it knows
//! the function's arguments.

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens as _;
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
    /// Names in the order they were written.
    pub(crate) names: Vec<Name>,
    /// True if a name could not be parsed; that mistake is reported.
    pub(crate) unreadable: bool,
    pub(crate) options: Options,
    /// Options in the order they were written, each its word and all its tokens.
    pub(crate) given: Vec<(String, TokenStream)>,
    /// True if the names come from the method's `impl` block.
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
    /// Expression that implements `LockName`; rustc checks that.
    Expression(Expr),
}

impl Args {
    pub(crate) fn parse(tokens: TokenStream, mistakes: &mut Vec<Error>) -> Args {
        let mut reader = Reader::default();
        reader.read(tokens);
        mistakes.append(&mut reader.mistakes);
        reader.args
    }

    /// Parses the arguments of a method. Those of its `impl` block are the defaults, and have no mistakes.
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
            let message = format!("{message} (the other one is at the `impl`)");
            Error::new(mistake.span(), message)
        }));
        let mut args = reader.args;
        if args.names.is_empty() && !args.unreadable {
            args.names.clone_from(&defaults.names);
            args.inherited = true;
        }
        args
    }

    /// Returns the options as they were written, except `crate`.
    pub(crate) fn written(&self) -> String {
        let options = self.given.iter().filter(|(word, _)| word != "crate");
        options.map(|(_, tokens)| tokens.to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Returns the names that are a single word, each an expression or a mistake.
    pub(crate) fn words(&self) -> impl Iterator<Item = &Ident> {
        self.names.iter().filter_map(|name| name.kind.word())
    }
}

impl NameKind {
    /// Returns the word if the name is an expression of a single word.
    pub(crate) fn word(&self) -> Option<&Ident> {
        match self {
            NameKind::Expression(Expr::Path(path)) if path.attrs.is_empty() => {
                path.path.get_ident()
            }
            _ => None,
        }
    }

    pub(crate) fn tokens(&self) -> TokenStream {
        match self {
            NameKind::Template(text) => text.to_token_stream(),
            NameKind::Expression(expression) => expression.to_token_stream(),
        }
    }

    /// Returns the text by which an error refers to this name.
    pub(crate) fn shown(&self) -> String {
        match self {
            NameKind::Template(text) => format!("`{}`", text.token()),
            NameKind::Expression(_) => "this expression".to_owned(),
        }
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
            let item = if begins_option(input) || is_flag_alone(input) {
                self.option(input)
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
        let valued = input.parse::<Option<Token![=]>>()?.is_some();
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
        if is_flag(&key) == valued || valued && (input.is_empty() || input.peek(Token![,])) {
            return refuse(miswritten(&key, write));
        }
        let options = &mut self.args.options;
        if valued {
            options.value(&key, write, input)?
        } else {
            options.flag(&key)
        }
        match options.contradiction(&key) {
            None => Ok(()),
            Some(message) => refuse(message.to_owned()),
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

/// Returns true if the next item is a flag, and nothing else.
fn is_flag_alone(input: ParseStream<'_>) -> bool {
    let ahead = input.fork();
    let word = ahead.call(Ident::parse_any);
    let alone = ahead.is_empty() || ahead.peek(Token![,]);
    alone && word.is_ok_and(|word| is_flag(&word.to_string()))
}

/// Returns the word if it can only be meant as an option: `wait("5s")`, `wait: "5s"`. An option's word without a value may
/// be the name of an argument; `bind` decides that.
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
