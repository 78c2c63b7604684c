//! Annotated function: attributes, visibility and signature are parsed, the body stays raw tokens.
//!
//! So the macro works while the user is still typing a body, and only rustc reports mistakes in it.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::{ToTokens, TokenStreamExt as _};
use syn::parse::{Parse, ParseStream, Parser as _};
use syn::{Attribute, Error, Result, Signature, Token, Visibility};

/// Keywords of other items that can have an attribute; the error names the one found.
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
    /// Semicolon of a trait method without a body.
    Missing(Token![;]),
}

impl Function {
    pub(crate) fn parse(item: TokenStream) -> Result<Self> {
        let other = other_item(&item);
        Self::parse_tokens.parse2(item).map_err(|error| match other {
            None => error, // a function that syn cannot parse: rustc reports what is wrong with it
            Some(found) => {
                let remedy = match found.to_string().as_str() {
                    "trait" => "put it on the `impl` blocks of the trait, or on its methods that have a body",
                    _ => "put it on the functions that need the lock",
                };
                Error::new(
                    found.span(),
                    format!("`#[etcd_locked]` needs an `async fn` or an `impl` block, found `{found}`; {remedy}"),
                )
            }
        })
    }

    /// Removes the attributes of this macro from the function, and returns them.
    pub(crate) fn take_ours(&mut self) -> Vec<Attribute> {
        let (ours, others) = self.attrs.drain(..).partition(is_ours);
        self.attrs = others;
        ours
    }

    pub(crate) fn parse_tokens(input: ParseStream<'_>) -> Result<Self> {
        Ok(Function {
            attrs: input.call(Attribute::parse_outer)?,
            vis: input.parse()?,
            sig: input.parse()?,
            body: input.parse()?,
        })
    }
}

impl ToTokens for Function {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        tokens.append_all(&self.attrs);
        self.vis.to_tokens(tokens);
        self.sig.to_tokens(tokens);
        match &self.body {
            Body::Block(block) => block.to_tokens(tokens),
            Body::Missing(semi) => semi.to_tokens(tokens),
        }
    }
}

/// Returns true for this macro's attribute, under any path.
pub(crate) fn is_ours(attribute: &Attribute) -> bool {
    let last = attribute.path().segments.last();
    last.is_some_and(|last| last.ident == "etcd_locked")
}

/// Refuses an attribute of this macro below another one.
pub(crate) fn twice(second: &Attribute) -> Error {
    let message = "`#[etcd_locked]` is written twice here; write both names in one attribute, \
                   such as `#[etcd_locked(\"accounts/<from>\", \"accounts/<to>\")]`";
    Error::new_spanned(second.path(), message)
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

/// Returns the keyword of an item that is not a function.
fn other_item(item: &TokenStream) -> Option<proc_macro2::Ident> {
    let words = item.clone().into_iter().filter_map(|token| match token {
        TokenTree::Ident(word) => Some(word),
        _ => None,
    });
    let words: Vec<_> = words.collect();
    let is_fn = words.iter().any(|word| word == "fn");
    words.into_iter().find(|word| !is_fn && OTHER_ITEMS.iter().any(|item| word == item))
}
