//! Annotated function: attributes, visibility and signature are parsed, the body stays raw tokens.
//!
//! So the macro works while the user types a body, and rustc alone judges it.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use syn::parse::{Parse, ParseStream, Parser as _};
use syn::{Attribute, Error, Result, Signature, Token, Visibility};

/// Keywords of other items that an attribute can stand on; the error names the one found.
const OTHER_ITEMS: &[&str] = &[
    "struct",
    "enum",
    "union",
    "impl",
    "trait",
    "mod",
    "static",
    "const",
    "type",
    "use",
    "extern",
    "macro_rules",
    "let",
];

pub(crate) struct Function {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    pub(crate) body: Body,
}

pub(crate) enum Body {
    Block(Group),
    /// A trait method without a body.
    Missing(Token![;]),
}

impl Function {
    pub(crate) fn parse(item: TokenStream) -> Result<Self> {
        let other = other_item(&item);
        Self::parse_tokens.parse2(item).map_err(|error| match other {
            None => error, // a function that syn cannot read: rustc reports what is wrong with it
            Some(found) => Error::new(
                found.span(),
                format!("`#[etcd_locked]` needs an `async fn`, found `{found}`; put it on the functions that need the lock"),
            ),
        })
    }

    fn parse_tokens(input: ParseStream<'_>) -> Result<Self> {
        Ok(Function {
            attrs: input.call(Attribute::parse_outer)?,
            vis: input.parse()?,
            sig: input.parse()?,
            body: input.parse()?,
        })
    }
}

impl Parse for Body {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.peek(Token![;]) {
            return input.parse().map(Body::Missing);
        }
        // Not `parse::<Group>`: a `$body:block` comes wrapped in a group without delimiters.
        let content;
        let brace = syn::braced!(content in input);
        let mut group = Group::new(Delimiter::Brace, content.parse()?);
        group.set_span(brace.span.join());
        Ok(Body::Block(group))
    }
}

/// Returns the keyword of an item that is no function.
fn other_item(item: &TokenStream) -> Option<proc_macro2::Ident> {
    let words = item.clone().into_iter().filter_map(|token| match token {
        TokenTree::Ident(word) => Some(word),
        _ => None,
    });
    let words: Vec<_> = words.collect();
    let is_fn = words.iter().any(|word| word == "fn");
    words
        .into_iter()
        .find(|word| !is_fn && OTHER_ITEMS.iter().any(|item| word == item))
}
