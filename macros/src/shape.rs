//! Shape of an annotated function: an `async fn`, or one of the two forms whose whole body is one `async move` block.
//!
//! In any other form, code could run before the future does, and an early `return` would skip the lock.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use syn::{
    Error, GenericArgument, PathArguments, Result, ReturnType, Signature, Token, Type,
    TypeParamBound,
};

pub(crate) struct Shape {
    /// Code around the locked block in the function.
    pub(crate) frame: Frame,
    /// Braces that run under the lock.
    pub(crate) body: Group,
    /// Return type of those braces.
    pub(crate) output: ReturnType,
}

pub(crate) enum Frame {
    AsyncFn,
    /// `-> impl Future` with `{ async move { … } }`, or the form that `#[async_trait]` makes of an `async fn`:
    /// `-> Pin<Box<dyn Future>>` with `{ Box::pin(async move { … }) }`, where the constructor is `Box::pin`.
    Block {
        constructor: TokenStream,
        function: Group,
    },
}

impl Shape {
    pub(crate) fn of(sig: &Signature, body: &Group) -> Result<Self> {
        if sig.asyncness.is_some() {
            return Ok(Shape {
                frame: Frame::AsyncFn,
                body: body.clone(),
                output: sig.output.clone(),
            });
        }
        let returned = returned_future(&sig.output);
        let Some((block, output)) = block(body.stream()).zip(returned) else {
            let message = format!(
                "`{}` is not an `async fn`, and its body is not a single `async move` block, as `#[async_trait]` writes it; \
                 write `async fn`, or move the body to an `async fn`, put `#[etcd_locked]` on that and call it here",
                sig.ident
            );
            return Err(Error::new(sig.ident.span(), message));
        };
        let (constructor, block) = block;
        Ok(Shape {
            frame: Frame::Block { constructor, function: body.clone() },
            body: block,
            output: ReturnType::Type(<Token![->]>::default(), Box::new(output.clone())),
        })
    }
}

/// Splits `async move { … }` or `Box::pin(async move { … })` into the constructor and the braces.
fn block(tokens: TokenStream) -> Option<(TokenStream, Group)> {
    let mut tokens: Vec<_> = tokens.into_iter().collect();
    let last = tokens.pop()?;
    let TokenTree::Group(group) = last else {
        return None;
    };
    let words: Vec<_> = tokens.iter().map(ToString::to_string).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    match (group.delimiter(), &words[..]) {
        (Delimiter::Brace, ["async", "move"]) => Some((TokenStream::new(), group)),
        (Delimiter::Parenthesis, [.., "Box", ":", ":", "pin"]) if is_path(&words) => {
            let (inside, block) = block(group.stream())?;
            let constructor = tokens.into_iter().collect();
            inside.is_empty().then_some((constructor, block))
        }
        _ => None,
    }
}

/// Returns true for `Box::pin` and `::std::boxed::Box::pin`, without `;`, `?` or a call before them.
fn is_path(words: &[&str]) -> bool {
    let word = |word: &&str| word.starts_with(|c: char| c.is_alphabetic());
    words.iter().all(|part| *part == ":" || word(part))
        && !words.iter().any(|part| ["return", "let"].contains(part))
}

/// Returns `T` of `impl Future<Output = T> + …` and of `Pin<Box<dyn Future<Output = T> + …>>`, under any paths.
pub(crate) fn returned_future(output: &ReturnType) -> Option<&Type> {
    let ReturnType::Type(_, ty) = output else {
        return None;
    };
    let bounds = match ty.as_ref() {
        Type::ImplTrait(object) => &object.bounds,
        ty => match last_argument(ty, "Pin").and_then(|pinned| last_argument(pinned, "Box"))? {
            Type::TraitObject(object) => &object.bounds,
            _ => return None,
        },
    };
    bounds.iter().find_map(|bound| {
        let TypeParamBound::Trait(bound) = bound else {
            return None;
        };
        let last = bound.path.segments.last()?;
        let PathArguments::AngleBracketed(arguments) = &last.arguments else {
            return None;
        };
        arguments.args.iter().find_map(|argument| match argument {
            GenericArgument::AssocType(assoc)
                if last.ident == "Future" && assoc.ident == "Output" =>
            {
                Some(&assoc.ty)
            }
            _ => None,
        })
    })
}

/// Returns `T` of `path::to::Name<T>`.
fn last_argument<'a>(ty: &'a Type, name: &str) -> Option<&'a Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return None;
    };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_a_block_that_is_the_whole_body() {
        let constructor = |body: &str| {
            let (constructor, _) = block(body.parse().expect("tokens"))?;
            Some(constructor.to_string().replace(' ', ""))
        };
        for (body, wanted) in [
            ("async move { 1 }", Some("")),
            ("Box::pin(async move { 1 })", Some("Box::pin")),
            ("::std::boxed::Box::pin(async move { 1 })", Some("::std::boxed::Box::pin")),
            ("Box::pin(async { 1 })", None),
            ("Box::pin(async move { 1 });", None),
            ("return Box::pin(async move { 1 })", None),
            ("g(); Box::pin(async move { 1 })", None),
            ("Box::pin(g())", None),
            ("Box::pin(Box::pin(async move { 1 }))", None),
            ("Box::pin(async move { 1 }.boxed())", None),
            ("", None),
        ] {
            assert_eq!(constructor(body).as_deref(), wanted, "{body}");
        }
    }
}
