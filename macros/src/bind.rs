//! Placeholders → bindings of the function. Whatever is refused beyond the options is refused here, so that
//! `expand` cannot fail.

use std::ops::Range;

use proc_macro2::{Group, Span};
use syn::ext::IdentExt as _;
use syn::visit::{self, Visit};
use syn::{
    Error, FnArg, GenericArgument, Ident, Index, LitStr, Member, PatIdent, PathArguments, Result,
    ReturnType, Signature, Token, Type, TypeParamBound,
};

use crate::args::{Args, Options};
use crate::function::{Body, Function};
use crate::template::{Placeholder, Template};
use crate::typo::nearest;

/// Everything `expand` needs, and nothing that could still be wrong.
pub(crate) struct Bound {
    pub(crate) function: Function,
    pub(crate) body: Group,
    pub(crate) template: LitStr,
    pub(crate) values: Vec<Value>,
    pub(crate) options: Options,
}

/// `<order.id>` as tokens: the function's own binding, so that it resolves inside `macro_rules!` too.
pub(crate) struct Value {
    pub(crate) head: Ident,
    pub(crate) fields: Vec<Member>,
}

/// `mistakes` are those found while parsing; a part that did not parse is `None`.
pub(crate) fn bind(
    args: Args,
    function: Option<Function>,
    mut mistakes: Vec<Error>,
) -> Result<Bound> {
    let body = function
        .as_ref()
        .and_then(|function| protected_body(function, &mut mistakes));
    let values = args
        .name
        .as_ref()
        .map(|name| values(name, function.as_ref(), &mut mistakes));
    let error = mistakes.into_iter().reduce(|mut all, next| {
        all.combine(next);
        all
    });
    match (error, function, body, args.name, values) {
        (None, Some(function), Some(body), Some(template), Some(values)) => Ok(Bound {
            function,
            body,
            template,
            values,
            options: args.options,
        }),
        (Some(error), ..) => Err(error),
        // Each `None` above came with a mistake; if that is ever untrue, say so instead of panicking.
        (None, ..) => Err(Error::new(
            Span::call_site(),
            "`#[etcd_locked]` found no function to lock",
        )),
    }
}

/// The body of a function that can wait for a lock. At most one mistake: they follow from each other.
fn protected_body(function: &Function, mistakes: &mut Vec<Error>) -> Option<Group> {
    let sig = &function.sig;
    let refusal = if let Some(keyword) = &sig.constness {
        Error::new(
            keyword.span,
            "a `const fn` cannot wait for a lock; write `async fn`",
        )
    } else if let Some(abi) = &sig.abi {
        let message = "an `extern` function cannot wait for a lock; put `#[etcd_locked]` on an `async fn` and call that";
        Error::new(abi.extern_token.span, message)
    } else if sig.asyncness.is_none() && returns_boxed_future(&sig.output) {
        let message = format!(
            "`{}` is no `async fn`: it returns a `Pin<Box<dyn Future>>`, as `#[async_trait]` makes it; \
             move the body to an `async fn` of a plain `impl` block, put `#[etcd_locked]` on that and call it here",
            sig.ident
        );
        Error::new(sig.ident.span(), message)
    } else if sig.asyncness.is_none() {
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
            Body::Block(body) => return Some(body.clone()),
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

fn values(name: &LitStr, function: Option<&Function>, mistakes: &mut Vec<Error>) -> Vec<Value> {
    let text = name.value();
    let template = Template::parse(&text);
    for mistake in template.mistakes {
        mistakes.push(Error::new(
            span_of(name, &text, mistake.range),
            mistake.message,
        ));
    }
    let Some(function) = function else {
        return Vec::new();
    };
    let bindings = Bindings::of(&function.sig);
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

/// Where in the literal the mistake is, if this compiler can say (stable cannot) and the value's bytes are the
/// source's (not so with escapes); else the whole literal. Messages name the part themselves.
fn span_of(name: &LitStr, text: &str, range: Range<usize>) -> Span {
    let token = name.token();
    let verbatim = token
        .to_string()
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        == Some(text);
    let part = if verbatim {
        token.subspan(range.start + 1..range.end + 1)
    } else {
        None
    };
    part.unwrap_or_else(|| name.span())
}

/// Every name the arguments bring into the body's scope.
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

    fn value(
        &self,
        placeholder: &Placeholder<'_>,
        span: Span,
    ) -> std::result::Result<Value, String> {
        let mut head = self.resolve(placeholder)?;
        // Resolves as the user's own binding, but points at the template.
        head.set_span(head.span().located_at(span));
        let span = Span::mixed_site().located_at(span);
        let member = |field: &&str| match field.parse() {
            Ok(index) => Ok(Member::Unnamed(Index { index, span })),
            Err(_) => match syn::parse_str::<Ident>(field) {
                Ok(mut name) => {
                    name.set_span(span);
                    Ok(Member::Named(name))
                }
                Err(_) => Err(format!("`{field}` is no field name rustc knows")),
            },
        };
        let fields = placeholder
            .fields
            .iter()
            .map(member)
            .collect::<std::result::Result<_, _>>()?;
        Ok(Value { head, fields })
    }

    fn resolve(&self, placeholder: &Placeholder<'_>) -> std::result::Result<Ident, String> {
        let word = placeholder.head;
        if word == "self" {
            return match self.receiver {
                None => Err(
                    "this function has no `self`; name one of its arguments, such as `<id>`".into(),
                ),
                Some(_) if placeholder.fields.is_empty() => Err(
                    "`<self>` is the whole receiver; name a field of it, such as `<self.id>`"
                        .into(),
                ),
                Some(receiver) => Ok(Ident::new("self", receiver.span)),
            };
        }
        let word = word.strip_prefix("r#").unwrap_or(word);
        let found = self.idents.iter().find(|ident| ident.unraw() == word);
        found
            .map(|ident| (*ident).clone())
            .ok_or_else(|| self.unknown(word, placeholder))
    }

    fn unknown(&self, word: &str, placeholder: &Placeholder<'_>) -> String {
        let names: Vec<String> = self.idents.iter().map(|ident| ident.to_string()).collect();
        let path = |head: &str| [&[head], &placeholder.fields[..]].concat().join(".");
        if let Some(near) = nearest(word, names.iter().map(String::as_str)) {
            return format!(
                "no argument named `{word}`; did you mean `<{}>`?",
                path(near)
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

/// `Pin<Box<dyn Future<…> + …>>`, under whatever paths.
fn returns_boxed_future(output: &ReturnType) -> bool {
    let ReturnType::Type(_, ty) = output else {
        return false;
    };
    let boxed = last_argument(ty, "Pin").and_then(|pinned| last_argument(pinned, "Box"));
    let Some(Type::TraitObject(object)) = boxed else {
        return false;
    };
    object.bounds.iter().any(|bound| match bound {
        TypeParamBound::Trait(bound) => bound
            .path
            .segments
            .last()
            .is_some_and(|last| last.ident == "Future"),
        _ => false,
    })
}

/// `T` of `path::to::Name<T>`.
fn last_argument<'a>(ty: &'a Type, name: &str) -> Option<&'a Type> {
    let Type::Path(path) = ty else { return None };
    let last = path
        .path
        .segments
        .last()
        .filter(|last| last.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return None;
    };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}
