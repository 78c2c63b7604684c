//! Annotated `impl` block: each method is expanded as if the attribute stood on it, with the block's names and options.
//!
//! The block is read as tokens: head, then items up to their body. No body is parsed, so an item that is half typed costs
//! its own lock only.

use proc_macro2::{Delimiter, Group, Ident, Punct, Span, TokenStream, TokenTree};
use quote::{ToTokens as _, quote};
use syn::parse::{ParseStream, Parser as _};
use syn::{Attribute, Error, Meta, Result, Signature};

use crate::args::Args;
use crate::bind;
use crate::crate_path;
use crate::editor;
use crate::function::{Function, is_ours, twice};
use crate::options::UNLOCKED;
use crate::shape;
use crate::typo::nearest;

pub(crate) struct Block {
    /// Attributes, `impl … for …`, where clause.
    head: TokenStream,
    keyword: Ident,
    body: Group,
}

/// What is written in the place of an item.
enum Written {
    /// Not expanded: no method, `unlocked`, no `self` and no attribute of ours, or not readable.
    AsItWas(TokenStream),
    Locked(TokenStream),
    /// A method for which neither its own attribute nor the block's names a lock.
    Nameless(TokenStream),
}

impl Block {
    /// Splits an `impl` block into its parts; returns `None` for every other item.
    pub(crate) fn of(item: &TokenStream) -> Option<Self> {
        let mut tokens: Vec<TokenTree> = item.clone().into_iter().collect();
        if let [TokenTree::Group(whole)] = &tokens[..]
            && whole.delimiter() == Delimiter::None
        {
            return Self::of(&whole.stream()); // a `macro_rules!` hands on `$it:item` like this
        }
        let mut words = tokens.iter().filter_map(word);
        let keyword = words.find(|word| *word != "unsafe" && *word != "default")?;
        let keyword = (keyword == "impl").then(|| keyword.clone())?;
        let TokenTree::Group(body) = tokens.pop()? else {
            return None;
        };
        (body.delimiter() == Delimiter::Brace).then(|| Block {
            head: tokens.into_iter().collect(),
            keyword,
            body,
        })
    }

    /// Expands the block; mistakes follow it, and what they are about stays as it was.
    pub(crate) fn expand(self, args: TokenStream) -> TokenStream {
        let mut mistakes = Vec::new();
        let defaults = Args::parse(args, &mut mistakes);
        if let Some(refusal) = misplaced_unlocked(&defaults) {
            mistakes.push(refusal);
        } else if !defaults.names.is_empty() {
            bind::names(&defaults, None, &mut mistakes);
        }
        if defaults.options.krate.is_none() {
            mistakes.extend(crate_path::path().err());
        }
        let (attributes, head) = outer_attributes(self.head);
        let (ours, attributes): (Vec<_>, Vec<_>) = attributes.into_iter().partition(is_ours);
        mistakes.extend(ours.first().map(twice));
        let judged = mistakes.is_empty();
        let mut inside = TokenStream::new();
        let mut errors: TokenStream = mistakes.iter().map(Error::to_compile_error).collect();
        let (mut locked, mut nameless) = (0, false);
        for item in items(self.body.stream()) {
            if !judged {
                inside.extend(without_ours(item));
                continue;
            }
            match written(item.clone(), &defaults) {
                Ok(Written::AsItWas(item)) => inside.extend(item),
                Ok(Written::Locked(method)) => {
                    locked += 1;
                    inside.extend(method);
                }
                Ok(Written::Nameless(method)) => {
                    nameless = true;
                    inside.extend(method);
                }
                Err(mistakes) => {
                    errors.extend(reported(&item, mistakes));
                    let lint = is_method(&item).then(|| quote!(#[allow(unused_variables)]));
                    let item = without_ours(item);
                    inside.extend(quote!(#lint #item));
                }
            }
        }
        if nameless {
            let message = r#"missing lock name; begin with one, such as `#[etcd_locked("accounts/<self.id>")]`"#;
            errors.extend(Error::new(Span::call_site(), message).into_compile_error());
        } else if judged && locked == 0 && errors.is_empty() {
            let message = "no method of this `impl` takes the lock, as none is an `async fn` with a `self`; remove `#[etcd_locked]`";
            errors.extend(Error::new(self.keyword.span(), message).into_compile_error());
        }
        let mut body = Group::new(Delimiter::Brace, inside);
        body.set_span(self.body.span());
        quote!(#(#attributes)* #head #body #errors)
    }
}

/// Expands an item of a block.
fn written(item: TokenStream, defaults: &Args) -> Result<Written> {
    if !is_method(&item) {
        return match macro_call(&item) {
            Some(name) => macro_written(item, &name),
            None => Ok(Written::AsItWas(item)),
        };
    }
    let Ok(mut method) = Function::parse(item.clone()) else {
        return Ok(Written::AsItWas(half_typed(item)));
    };
    let ours = method.take_ours();
    let own = match &ours[..] {
        [] if method.sig.receiver().is_none() => return Ok(Written::AsItWas(item)),
        [] => None,
        [own] => Some(arguments(own)?),
        [_, second, ..] => return Err(twice(second)),
    };
    let sig = &method.sig;
    match &own {
        Some(own) if says_unlocked(own, sig)? => {
            return Ok(Written::AsItWas(method.into_token_stream()));
        }
        None if sig.asyncness.is_none() && shape::returned_future(&sig.output).is_none() => {
            let message = format!(
                "`{}` is no `async fn`, so it cannot take the lock of its `impl`; \
                 write `async`, or `#[etcd_locked({UNLOCKED})]` above it if it needs no lock",
                sig.ident
            );
            return Err(Error::new(sig.ident.span(), message));
        }
        _ => {}
    }
    let mut mistakes = Vec::new();
    let args = Args::parse_over(defaults, own.unwrap_or_default(), &mut mistakes);
    if args.inherited && args.names.is_empty() && mistakes.is_empty() {
        return Ok(Written::Nameless(method.into_token_stream()));
    }
    let bound = bind::bind(args, Some(method), mistakes)?;
    Ok(Written::Locked(editor::expand_for_reader(&bound)))
}

/// Leaves a method that cannot be read to rustc, which says why. If rustc can read it, in a newer Rust say, its lock would be
/// forgotten in silence; so its body does not compile.
fn half_typed(item: TokenStream) -> TokenStream {
    let mut item: Vec<TokenTree> = item.into_iter().collect();
    let name = name(&item).map_or_else(Span::call_site, Ident::span);
    if let Some(TokenTree::Group(body)) = item.last_mut()
        && body.delimiter() == Delimiter::Brace
    {
        let message = "`#[etcd_locked]` cannot read this method, so it would run without the lock";
        let error = Error::new(name, message).into_compile_error();
        let (span, inside) = (body.span(), body.stream());
        *body = Group::new(Delimiter::Brace, quote!(#error #inside));
        body.set_span(span);
    }
    item.into_iter().collect()
}

/// Returns what stands in the parentheses of the attribute.
fn arguments(attribute: &Attribute) -> Result<TokenStream> {
    match &attribute.meta {
        Meta::Path(_) => Ok(TokenStream::new()),
        Meta::List(list) => Ok(list.tokens.clone()),
        Meta::NameValue(value) => Err(Error::new_spanned(
            &value.path,
            "arguments stand in parentheses, such as `#[etcd_locked(shared)]`",
        )),
    }
}

/// Returns true if a method's arguments are `unlocked`. Refuses that word together with others, or misspelt.
fn says_unlocked(arguments: &TokenStream, sig: &Signature) -> Result<bool> {
    let args = Args::parse(arguments.clone(), &mut Vec::new());
    let alone = args.names.len() + args.given.len() == 1;
    for word in args.words() {
        let message = match word.to_string() {
            text if text == UNLOCKED && alone => return Ok(true),
            text if text == UNLOCKED => {
                format!("`{text}` stands alone; remove it, or what stands beside it")
            }
            text if alone
                && !bind::is_argument(sig, word)
                && nearest(&text, [UNLOCKED].into_iter()).is_some() =>
            {
                format!("unknown option `{text}`; did you mean `{UNLOCKED}`?")
            }
            _ => continue,
        };
        return Err(Error::new(word.span(), message));
    }
    Ok(false)
}

/// Refuses `unlocked` where it is no method of an annotated block.
pub(crate) fn misplaced_unlocked(args: &Args) -> Option<Error> {
    let word = args.words().find(|word| *word == UNLOCKED)?;
    let message = "`unlocked` is for methods of an `impl` that has a lock, such as `#[etcd_locked(\"accounts/<self.id>\")]`; remove it here";
    Some(Error::new(word.span(), message))
}

/// Leaves the call of a macro as it is if it says `unlocked`; the methods that it writes are not seen here.
fn macro_written(item: TokenStream, name: &Ident) -> Result<Written> {
    let (attributes, _) = outer_attributes(item.clone());
    let mut ours = attributes.iter().filter(|attribute| is_ours(attribute));
    let says_so = ours.all(|own| arguments(own).is_ok_and(|it| it.to_string() == UNLOCKED));
    if says_so && attributes.iter().any(is_ours) {
        return Ok(Written::AsItWas(without_ours(item)));
    }
    let message = format!(
        "methods that `{name}!` writes would not take the lock of this `impl`; \
         move it to an `impl` of its own, or write `#[etcd_locked({UNLOCKED})]` above it"
    );
    Err(Error::new(name.span(), message))
}

/// Writes the errors behind the block; those of a method that `#[cfg]` leaves out are left out as well.
fn reported(item: &TokenStream, mistakes: Error) -> TokenStream {
    let (mut attributes, _) = outer_attributes(item.clone());
    attributes.retain(|attribute| attribute.path().is_ident("cfg"));
    let errors = mistakes.into_iter().map(Error::into_compile_error);
    errors.map(|error| quote!(#(#attributes)* #error)).collect()
}

fn without_ours(item: TokenStream) -> TokenStream {
    let (attributes, rest) = outer_attributes(item);
    let others = attributes.iter().filter(|attribute| !is_ours(attribute));
    quote!(#(#others)* #rest)
}

/// Splits an item into its attributes and the rest.
fn outer_attributes(item: TokenStream) -> (Vec<Attribute>, TokenStream) {
    let split = |input: ParseStream<'_>| Ok((Attribute::parse_outer(input)?, input.parse()?));
    split.parse2(item.clone()).unwrap_or_else(|_half_typed| (Vec::new(), item))
}

/// Splits the inside of a block into its items. The last one may be half typed.
fn items(inside: TokenStream) -> Vec<TokenStream> {
    let mut rest: Vec<TokenTree> = inside.into_iter().collect();
    rest.reverse();
    let mut items = Vec::new();
    let mut item: Vec<TokenTree> = Vec::new();
    while let Some(token) = rest.pop() {
        if let TokenTree::Group(whole) = &token
            && whole.delimiter() == Delimiter::None
            && item.iter().all(is_of_attribute)
        {
            // A `macro_rules!` hands on `$vis:vis` or `$it:item` like this.
            let inside: Vec<TokenTree> = whole.stream().into_iter().collect();
            rest.extend(inside.into_iter().rev());
            continue;
        }
        item.push(token);
        if is_whole(&item, rest.last()) {
            items.push(item.drain(..).collect());
        }
    }
    if !item.is_empty() {
        items.push(item.into_iter().collect());
    }
    items
}

/// Returns true if these tokens are an item, and `next` begins another one.
fn is_whole(item: &[TokenTree], next: Option<&TokenTree>) -> bool {
    match item {
        [TokenTree::Punct(_), TokenTree::Punct(not), TokenTree::Group(_)] if is(not, '!') => true, // `#![allow(..)]`
        [.., TokenTree::Punct(semi)] => is(semi, ';'),
        [.., TokenTree::Group(body)] if is_body(body) => {
            // `-> Array<{ N }>` goes on after the braces, and so does `const N: usize = { 5 };`.
            let goes_on =
                matches!(next, Some(TokenTree::Punct(punct)) if is(punct, '>') || is(punct, ','));
            !goes_on && !ends_at_semicolon(item)
        }
        _ => false,
    }
}

/// Returns true for braces, also those that a `macro_rules!` hands on as `$body:block`.
fn is_body(group: &Group) -> bool {
    match group.delimiter() {
        Delimiter::Brace => true,
        Delimiter::None => {
            let inside: Vec<TokenTree> = group.stream().into_iter().collect();
            matches!(&inside[..], [TokenTree::Group(inner)] if inner.delimiter() == Delimiter::Brace)
        }
        _ => false,
    }
}

/// Returns true for constants and types.
fn ends_at_semicolon(item: &[TokenTree]) -> bool {
    let mut words = item.iter().filter_map(word);
    let first = words.find(|word| *word != "pub" && *word != "default");
    first.is_some_and(|first| first == "const" || first == "type") && name(item).is_none()
}

fn is_method(item: &TokenStream) -> bool {
    name(&item.clone().into_iter().collect::<Vec<_>>()).is_some()
}

/// Returns the name of the function that the item declares; the type `fn(u8)` has none.
fn name(item: &[TokenTree]) -> Option<&Ident> {
    item.windows(2).find_map(|pair| match pair {
        [TokenTree::Ident(word), TokenTree::Ident(name)] if word == "fn" => Some(name),
        _ => None,
    })
}

/// Returns the name of the macro that the item calls.
fn macro_call(item: &TokenStream) -> Option<Ident> {
    let item: Vec<TokenTree> = item.clone().into_iter().collect();
    let called = |three: &[TokenTree]| match three {
        [TokenTree::Ident(name), TokenTree::Punct(not), TokenTree::Group(_)] if is(not, '!') => {
            Some(name.clone())
        }
        _ => None,
    };
    item.windows(3).find_map(called).filter(|_| !ends_at_semicolon(&item))
}

fn word(token: &TokenTree) -> Option<&Ident> {
    match token {
        TokenTree::Ident(word) => Some(word),
        _ => None,
    }
}

fn is(punct: &Punct, character: char) -> bool {
    punct.as_char() == character
}

/// Returns true for `#` and `[..]`.
fn is_of_attribute(token: &TokenTree) -> bool {
    match token {
        TokenTree::Punct(punct) => is(punct, '#'),
        TokenTree::Group(group) => group.delimiter() == Delimiter::Bracket,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(args: TokenStream, item: TokenStream) -> String {
        let block = Block::of(&item).expect("an impl block");
        block.expand(args).to_string()
    }

    fn alone(args: TokenStream, method: TokenStream) -> String {
        crate::locked(args, &method).expect("no mistakes").to_string()
    }

    fn mistakes(args: TokenStream, item: TokenStream) -> usize {
        expanded(args, item).matches("compile_error").count()
    }

    #[test]
    fn methods_expand_as_they_do_alone() {
        let args = || quote!("accounts/<self.id>", wait = "5s");
        let debit = quote! {
            /// Takes money.
            pub(crate) async fn debit<T>(&self, by: T) -> Result<[T; { 1 }], E> where T: Copy { let n = s.; 5 }
        };
        let boxed = quote! {
            fn keep(&self) -> Pin<Box<dyn Future<Output = Result<(), E>> + Send + '_>> { Box::pin(async move { 5 }) }
        };
        let generic = quote!(
            async fn array(&self) -> Result<Array<{ N + 1 }>, E>
            where
                Array<{ N }>: Sized,
            {
            }
        );
        let new = quote!(
            pub fn new(id: u64) -> Self {
                Self { id }
            }
        );
        let id = quote!(
            pub const fn id(&self) -> u64 {
                self.id
            }
        );
        let others = quote!(
            const N: usize = { 5 };
            type T = Array<{ N }>;
            const F: fn(u8) = |_| {};
        );
        let expansion = expanded(
            args(),
            quote! {
                #[async_trait] unsafe impl<T: Copy, const N: usize> Ledger for Account<T, { N }> where T: Send {
                    #![allow(unused)]
                    #others
                    #debit
                    #generic
                    #[etcd_locked::etcd_locked(unlocked)]
                    #id
                    #new
                    #[etcd_locked]
                    #boxed
                }
            },
        );
        let (debit, generic, boxed) =
            (alone(args(), debit), alone(args(), generic), alone(args(), boxed));
        let wanted = quote!(#[async_trait] unsafe impl<T: Copy, const N: usize> Ledger for Account<T, { N }> where T: Send);
        let inner = quote!(#![allow(unused)]);
        assert_eq!(
            expansion,
            format!("{wanted} {{ {inner} {others} {debit} {generic} {id} {new} {boxed} }}")
        );
    }

    #[test]
    fn options_of_a_method_go_over_those_of_the_block() {
        let args = || {
            quote!(
                "a/<self.id>",
                wait = "5s",
                permits = 5,
                map_err = |a, b| f::<A, B>(a, b),
                ttl = "30s"
            )
        };
        let method = quote!(
            async fn f(&self) -> Result<(), E> {
                Ok(())
            }
        );
        for (own, all) in [
            (quote!(), args()),
            (
                quote!(wait = "1s", shared),
                quote!(
                    "a/<self.id>",
                    map_err = |a, b| f::<A, B>(a, b),
                    ttl = "30s",
                    wait = "1s",
                    shared
                ),
            ),
            (
                quote!(permits = self.limit, wait = self.wait),
                quote!(
                    "a/<self.id>",
                    map_err = |a, b| f::<A, B>(a, b),
                    ttl = "30s",
                    permits = self.limit,
                    wait = self.wait
                ),
            ),
            (
                quote!("b", Order { id }, on_error = f, permits = 3),
                quote!("b", Order { id }, wait = "5s", ttl = "30s", on_error = f, permits = 3),
            ),
        ] {
            let expansion = expanded(args(), quote!(impl A { #[etcd_locked(#own)] #method }));
            let alone = alone(all, method.clone());
            assert_eq!(expansion, format!("impl A {{ {alone} }}"));
        }
    }

    #[test]
    fn half_typed_method_costs_its_own_lock_only() {
        let args = || quote!("a/<self.id>");
        let method = quote!(
            async fn f(&self) -> Result<(), E> {
                Ok(())
            }
        );
        let locked = alone(args(), method.clone());
        for half in [
            quote!(async fn half(&self) -> { self.; }),
            quote!(async fn half(&self, x: ) { 5 }),
            quote!(async fn half(&self, x) -> u8 { let y = }),
            quote!(pub const N: u8 = 5),
            quote!(pub asy),
            quote!(async fn half(&self)),
            quote!(fn),
        ] {
            let before = expanded(args(), quote!(impl A { #method #half }));
            assert!(before.starts_with(&format!("impl A {{ {locked} ")), "{before}");
            assert!(before.matches("compile_error").count() <= 1, "{before}");
        }
        for half in [
            quote!(async fn half(&self) -> { self.; }),
            quote!(async fn half(&self, x) -> u8 { let y = }),
            quote!(
                async fn half(&self);
            ),
        ] {
            let after = expanded(args(), quote!(impl A { #half #method }));
            assert!(after.contains(&format!("{locked} }}")), "{after}");
        }
    }

    #[test]
    fn methods_take_the_lock_or_say_that_they_do_not() {
        let count = |method: TokenStream| {
            let wanted = quote!(
                async fn f(&self) -> Result<(), E> {
                    Ok(())
                }
            );
            mistakes(quote!("a/<self.id>"), quote!(impl A { #wanted #method }))
        };
        for forgotten in [
            "fn g(&self) {}",
            "const fn g(self) {}",
            r#"extern "C" fn g(&mut self) {}"#,
            "fn g(self: Arc<Self>) -> impl Stream {}",
            "fn g(&self) -> impl Future<Output = u8> { h() }",
            "#[etcd_locked(unlokced)] async fn g(&self) {}",
            r#"#[etcd_locked(unlocked, wait = "5s")] fn g(&self) {}"#,
            r#"#[etcd_locked = "unlocked"] fn g(&self) {}"#,
            "#[etcd_locked] #[etcd_locked(unlocked)] fn g(&self) {}",
            r#"#[etcd_locked("b")] fn g() {}"#,
            "default async fn g(&self) {}",
            "methods!();",
            "my::methods! {}",
        ] {
            assert_eq!(count(forgotten.parse().expect("tokens")), 1, "{forgotten}");
        }
        for said in [
            "#[etcd_locked(unlocked)] fn g(&self) {}",
            "#[etcd_locked(unlocked)] methods! {}",
            r#"#[etcd_locked("b")] async fn g() {}"#,
            "#[etcd_locked(unlock)] async fn g(&self, unlock: Name) {}",
            "fn g(other: &Self) {}",
        ] {
            assert_eq!(count(said.parse().expect("tokens")), 0, "{said}");
        }
    }

    #[test]
    fn a_mistake_of_the_block_is_reported_once() {
        let one = quote!(
            async fn f(&self) {}
        );
        let two = quote!(
            #[etcd_locked(shared)]
            async fn g(&self) {}
        );
        for args in
            [quote!("a/<self.id"), quote!("a", wiat = "5s"), quote!(wait = "5s"), quote!(unlocked)]
        {
            assert_eq!(mistakes(args.clone(), quote!(impl A { #one #two })), 1, "{args}");
        }
        assert_eq!(mistakes(quote!("a"), quote!(impl A {})), 1);
        assert_eq!(mistakes(quote!("a"), quote!(#[etcd_locked("b")] impl A { #one })), 1);
        let own = quote!(
            #[etcd_locked("a")]
            async fn f(&self) {}
        );
        assert_eq!(mistakes(quote!(wait = "5s"), quote!(impl A { #own })), 0);
    }

    #[test]
    fn mistakes_of_a_method_that_cfg_leaves_out_are_left_out() {
        let expansion = expanded(
            quote!("a"),
            quote!(impl A { #[cfg(windows)] fn f(&self) {} async fn g(&self) {} }),
        );
        let error = quote!(#[cfg(windows)] ::core::compile_error!).to_string();
        assert!(expansion.contains(&error), "{expansion}");
    }
}
