//! Binding: placeholders → bindings of the annotated function. Every mistake is refused here or earlier, so `expand` cannot
//! fail.

use std::ops::Range;

use proc_macro2::Span;
use syn::ext::IdentExt as _;
use syn::visit::{self, Visit};
use syn::{
    Error, Expr, FnArg, Ident, Index, LitStr, Member, PatIdent, Result, ReturnType, Signature,
    Token, Type,
};

use crate::args::{Args, NameKind};
use crate::borrowed;
use crate::function::{Body, Function};
use crate::options::{self, Options};
use crate::shape::{self, Shape};
use crate::template::{Placeholder, Template};
use crate::typo::nearest;

/// Limit of names in one call. One transaction carries all of them, with two operations each; etcd's default limit is 128.
const MOST_NAMES: usize = 32;

/// Input of `expand`, without anything that could still be refused.
pub(crate) struct Bound {
    pub(crate) function: Function,
    pub(crate) shape: Shape,
    /// At least one, in the order they were written.
    pub(crate) names: Vec<Name>,
    pub(crate) options: Options,
    /// Options as a list of lock sites shows them.
    pub(crate) written: String,
}

pub(crate) enum Name {
    Template { text: LitStr, values: Vec<Value> },
    Expression(Expr),
}

/// `<order.id>` as tokens. Its head is the function's own binding, so that it resolves inside `macro_rules!` too.
pub(crate) struct Value {
    pub(crate) head: Ident,
    pub(crate) fields: Vec<Member>,
}

/// Binds the names to the function. `mistakes` were found while parsing; `function` is `None` if it did not parse.
pub(crate) fn bind(
    args: Args,
    function: Option<Function>,
    mut mistakes: Vec<Error>,
) -> Result<Bound> {
    let shape = function.as_ref().and_then(|function| shape(function, &mut mistakes));
    let names = names(&args, function.as_ref(), &mut mistakes);
    if names.len() == args.names.len() && !args.unreadable {
        mistakes.extend(miscounted(&args));
    }
    if args.options.detach
        && let Some(function) = &function
    {
        mistakes.extend(borrowed::refusal(&function.sig));
    }
    let error = mistakes.into_iter().reduce(|mut all, next| {
        all.combine(next);
        all
    });
    match (error, function, shape) {
        (None, Some(function), Some(shape)) if !names.is_empty() => {
            let written = args.written();
            Ok(Bound { function, shape, names, options: args.options, written })
        }
        (Some(error), ..) => Err(error),
        // Each `None` above came with a mistake. If that is ever untrue, report it instead of panicking.
        (None, ..) => {
            Err(Error::new(Span::call_site(), "`#[etcd_locked]` found no function to lock"))
        }
    }
}

/// Finds the block to lock, or reports why there is none. Reports at most one mistake, because the others follow from it.
fn shape(function: &Function, mistakes: &mut Vec<Error>) -> Option<Shape> {
    let sig = &function.sig;
    let refusal = if let Some(keyword) = &sig.constness {
        Error::new(keyword.span, "a `const fn` cannot wait for a lock; write `async fn`")
    } else if let Some(abi) = &sig.abi {
        let message = "an `extern` function cannot wait for a lock; put `#[etcd_locked]` on an `async fn` and call that";
        Error::new(abi.extern_token.span, message)
    } else if sig.asyncness.is_none() && shape::returned_future(&sig.output).is_none() {
        let message = "`#[etcd_locked]` needs an `async fn`; write `async`, \
                       or put `#[etcd_locked]` above the attribute that removed `async` (`#[tokio::main]`, `#[tokio::test]`)";
        Error::new(sig.fn_token.span, message)
    } else if let ReturnType::Type(_, ty) = &sig.output
        && let Type::Never(never) = ty.as_ref()
    {
        let message = "a function that returns `!` cannot report a lock error; return `Result<Infallible, LockError>`";
        Error::new(never.bang_token.span, message)
    } else {
        match &function.body {
            Body::Block(body) => match Shape::of(sig, body) {
                Ok(shape) => return Some(shape),
                Err(refusal) => refusal,
            },
            Body::Missing(semi) => {
                let message = format!(
                    "`{}` has no body to run under the lock; put `#[etcd_locked]` on the methods that implement it",
                    sig.ident
                );
                Error::new(semi.span, message)
            }
        }
    };
    mistakes.push(refusal);
    None
}

/// Checks the names and returns the good ones.
pub(crate) fn names(
    args: &Args,
    function: Option<&Function>,
    mistakes: &mut Vec<Error>,
) -> Vec<Name> {
    let bindings = function.map(|function| Bindings::of(&function.sig));
    let mut names = Vec::new();
    let mut templates: Vec<String> = Vec::new();
    for name in &args.names {
        if let Some(word) = name.kind.word()
            && !bindings.as_ref().is_some_and(|bindings| bindings.has(word))
            && let Some(message) = options::misplaced(word)
        {
            mistakes.push(Error::new(word.span(), message));
            continue;
        }
        let shown = name.kind.shown();
        if name.after_options {
            let message = format!("lock names come before the options; move {shown} to the front");
            mistakes.push(Error::new_spanned(name.kind.tokens(), message));
        }
        let text = match &name.kind {
            NameKind::Template(text) => text,
            NameKind::Expression(expression) => {
                names.push(Name::Expression(expression.clone()));
                continue;
            }
        };
        if templates.contains(&text.value()) {
            let message = format!("{shown} is named twice; remove one");
            mistakes.push(Error::new(text.span(), message));
            continue;
        }
        templates.push(text.value());
        let before = mistakes.len();
        let values = values(text, bindings.as_ref(), mistakes);
        // A mistake in the template is reported at the `impl`; an argument or field that a method lacks, at that method.
        if args.inherited
            && let Some(function) = function
            && let Some(mistake) = mistakes.get(before).map(Error::to_string)
        {
            mistakes.truncate(before);
            let method = &function.sig.ident;
            let message = format!(
                "`{method}` cannot take {shown}, the lock of its `impl`: {mistake}. \
                 Give it its own lock name, or write `#[etcd_locked(unlocked)]` above it"
            );
            mistakes.push(Error::new(method.span(), message));
        }
        names.push(Name::Template { text: text.clone(), values });
    }
    if args.names.is_empty() && !args.unreadable {
        let argument = args.given.iter().map(|(word, _)| word).find(|word| {
            let named = |bindings: &Bindings<'_>| bindings.idents.iter().any(|it| it == word);
            options::is_flag(word) && bindings.as_ref().is_some_and(named)
        });
        let message = match argument {
            None => r#"missing lock name; begin with one, such as `#[etcd_locked("orders/<id>")]`"#
                .to_owned(),
            Some(flag) => format!(
                "missing lock name; `{flag}` alone is an option, for the argument of that name write `({flag})`"
            ),
        };
        mistakes.push(Error::new(Span::call_site(), message));
    }
    if let Some(name) = args.names.get(MOST_NAMES) {
        let message = format!(
            "a call locks at most {MOST_NAMES} names; lock something that stands for all of them"
        );
        mistakes.push(Error::new_spanned(name.kind.tokens(), message));
    }
    names
}

/// Returns true if the word is an argument of the function.
pub(crate) fn is_argument(sig: &Signature, word: &Ident) -> bool {
    Bindings::of(sig).has(word)
}

/// Refuses a `proof` that does not have one variable for each name.
fn miscounted(args: &Args) -> Option<Error> {
    let proof = args.options.proof.as_ref()?;
    let (locks, variables) = (args.names.len(), proof.variables.len());
    if locks == variables || locks == 0 {
        return None;
    }
    let many = |count: usize| match count {
        1 => "one lock".to_owned(),
        count => format!("{count} locks"),
    };
    let message = format!(
        "this call takes {}, but `proof` names {}; write one variable for each lock, `_` for one you do not need",
        many(locks),
        many(variables)
    );
    Some(Error::new(proof.span, message))
}

fn values(name: &LitStr, bindings: Option<&Bindings<'_>>, mistakes: &mut Vec<Error>) -> Vec<Value> {
    let text = name.value();
    let template = Template::parse(&text);
    for mistake in template.mistakes {
        mistakes.push(Error::new(span_of(name, &text, mistake.range), mistake.message));
    }
    let Some(bindings) = bindings else {
        return Vec::new();
    };
    let mut values = Vec::new();
    for placeholder in template.placeholders {
        let span = span_of(name, &text, placeholder.range.clone());
        match bindings.value(&placeholder, span) {
            Ok(value) => values.push(value),
            Err(message) => mistakes.push(Error::new(span, message)),
        }
    }
    values
}

/// Returns the span of a part of the literal, or of the whole literal if the part cannot be located.
///
/// Stable compilers cannot locate parts, and no compiler can in a literal with escapes. So messages name the part.
pub(crate) fn span_of(name: &LitStr, text: &str, range: Range<usize>) -> Span {
    let token = name.token();
    let verbatim =
        token.to_string().strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) == Some(text);
    let part = if verbatim { token.subspan(range.start + 1..range.end + 1) } else { None };
    part.unwrap_or_else(|| name.span())
}

/// Names that the arguments bring into the body's scope.
#[derive(Default)]
struct Bindings<'a> {
    receiver: Option<&'a Token![self]>,
    idents: Vec<&'a Ident>,
}

impl<'a> Bindings<'a> {
    fn of(sig: &'a Signature) -> Self {
        let mut bindings = Bindings::default();
        for input in &sig.inputs {
            match input {
                FnArg::Receiver(receiver) => bindings.receiver = Some(&receiver.self_token),
                FnArg::Typed(argument) => bindings.visit_pat(&argument.pat),
            }
        }
        bindings
    }

    fn has(&self, word: &Ident) -> bool {
        self.idents.contains(&word)
    }

    fn value(
        &self,
        placeholder: &Placeholder<'_>,
        span: Span,
    ) -> std::result::Result<Value, String> {
        let mut head = self.resolve(placeholder)?;
        // The identifier resolves to the user's own binding, but its errors point at the template.
        head.set_span(head.span().located_at(span));
        let span = Span::mixed_site().located_at(span);
        let member = |field: &&str| match field.parse() {
            Ok(index) => Ok(Member::Unnamed(Index { index, span })),
            Err(_) => match syn::parse_str::<Ident>(field) {
                Ok(mut name) => {
                    name.set_span(span);
                    Ok(Member::Named(name))
                }
                Err(_) => Err(format!("`{field}` is not a valid field name")),
            },
        };
        let fields =
            placeholder.fields.iter().map(member).collect::<std::result::Result<_, _>>()?;
        Ok(Value { head, fields })
    }

    fn resolve(&self, placeholder: &Placeholder<'_>) -> std::result::Result<Ident, String> {
        let word = placeholder.head;
        if word == "self" {
            return match self.receiver {
                None => {
                    Err("this function has no `self`; name one of its arguments, such as `<id>`"
                        .into())
                }
                Some(_) if placeholder.fields.is_empty() => {
                    Err("`<self>` is the whole receiver; name a field of it, such as `<self.id>`"
                        .into())
                }
                Some(receiver) => Ok(Ident::new("self", receiver.span)),
            };
        }
        let word = word.strip_prefix("r#").unwrap_or(word);
        let found = self.idents.iter().find(|ident| ident.unraw() == word);
        found.map(|ident| (*ident).clone()).ok_or_else(|| self.unknown(word, placeholder))
    }

    fn unknown(&self, word: &str, placeholder: &Placeholder<'_>) -> String {
        let names: Vec<String> = self.idents.iter().map(|ident| ident.to_string()).collect();
        let path = |head: &str| [&[head], &placeholder.fields[..]].concat().join(".");
        if let Some(near) = nearest(word, names.iter().map(String::as_str)) {
            return format!("no argument named `{word}`; did you mean `<{}>`?", path(near));
        }
        if names.iter().any(|name| name.starts_with("__arg")) {
            return format!(
                "no argument named `{word}`: `#[async_trait]` hides patterns; give the argument a plain name, such as `order`, and write `<order.{word}>`"
            );
        }
        let field = if self.receiver.is_some() {
            format!("; a field is written `<self.{}>`", path(word))
        } else {
            String::new()
        };
        let has = if names.is_empty() {
            "no arguments".to_owned()
        } else {
            format!("`{}`", names.join("`, `"))
        };
        format!("no argument named `{word}`; this function has {has}{field}")
    }
}

impl<'a> Visit<'a> for Bindings<'a> {
    fn visit_pat_ident(&mut self, pat: &'a PatIdent) {
        self.idents.push(&pat.ident);
        visit::visit_pat_ident(self, pat);
    }
}
