//! Annotated `impl` block: each method is expanded as if it had the attribute itself, with the block's names and options.
//!
//! No body is parsed, so a half-typed method loses only its own lock.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens as _, quote};
use syn::parse::discouraged::Speculative as _;
use syn::parse::{ParseStream, Parser as _};
use syn::{Attribute, Error, ImplItem, ImplItemMacro, Meta, Result, Signature};

use crate::args::Args;
use crate::bind;
use crate::expand::expand;
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

/// Item of a block.
enum Item {
    Method(Box<Function>),
    /// Macro call. The methods that the macro writes are not visible here.
    Macro(ImplItemMacro),
    /// Item that takes no lock: an inner attribute, a constant, a type, or a method that cannot be parsed.
    Other(TokenStream),
}

/// Method in the form in which it is written out.
enum Written {
    Unlocked(Function),
    Locked(TokenStream),
    /// Method without a lock name: neither its own attribute nor the block's has one.
    Nameless(Function),
}

impl Block {
    /// Splits an `impl` block into its parts; returns `None` for every other item.
    pub(crate) fn of(item: &TokenStream) -> Option<Self> {
        let mut tokens: Vec<TokenTree> = item.clone().into_iter().collect();
        if let [TokenTree::Group(whole)] = &tokens[..]
            && whole.delimiter() == Delimiter::None
        {
            return Self::of(&whole.stream()); // a `macro_rules!` passes `$it:item` like this
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

    /// Expands the block. Errors follow it, and an item with a mistake stays as it was.
    pub(crate) fn expand(self, args: TokenStream) -> TokenStream {
        let mut mistakes = Vec::new();
        let defaults = Args::parse(args, &mut mistakes);
        if let Some(refusal) = misplaced_unlocked(&defaults) {
            mistakes.push(refusal);
        } else if !defaults.names.is_empty() {
            bind::names(&defaults, None, &mut mistakes);
        }
        let (attributes, head) = outer_attributes(self.head);
        let (ours, attributes): (Vec<_>, Vec<_>) = attributes.into_iter().partition(is_ours);
        mistakes.extend(ours.first().map(twice));
        let judged = mistakes.is_empty();
        let mut inside = TokenStream::new();
        let mut errors: TokenStream = mistakes.iter().map(Error::to_compile_error).collect();
        let (mut locked, mut nameless) = (false, false);
        // Every item can be parsed, at worst as `Item::Other`.
        for item in items.parse2(self.body.stream()).unwrap_or_default() {
            match item {
                Item::Other(item) => inside.extend(item),
                Item::Macro(mut call) => {
                    if judged && let Some(mistake) = unseen_methods(&call) {
                        errors.extend(reported(&call.attrs, mistake));
                    }
                    call.attrs.retain(|attribute| !is_ours(attribute));
                    inside.extend(call.into_token_stream());
                }
                Item::Method(mut method) => {
                    let attrs = method.attrs.clone();
                    let ours = method.take_ours();
                    let unlocked = method.to_token_stream();
                    if !judged {
                        inside.extend(unlocked);
                        continue;
                    }
                    match written(*method, &ours, &defaults) {
                        Ok(Written::Unlocked(method)) => inside.extend(method.into_token_stream()),
                        Ok(Written::Locked(method)) => {
                            locked = true;
                            inside.extend(method);
                        }
                        Ok(Written::Nameless(method)) => {
                            nameless = true;
                            inside.extend(method.into_token_stream());
                        }
                        Err(mistakes) => {
                            errors.extend(reported(&attrs, mistakes));
                            inside.extend(quote!(#[allow(unused_variables)] #unlocked));
                        }
                    }
                }
            }
        }
        if nameless {
            let message = r#"missing lock name; begin with one, such as `#[etcd_locked("accounts/<self.id>")]`"#;
            errors.extend(Error::new(Span::call_site(), message).into_compile_error());
        } else if judged && !locked && errors.is_empty() {
            let message = "no method of this `impl` takes the lock, because none is an `async fn` with `self`; remove `#[etcd_locked]`";
            errors.extend(Error::new(self.keyword.span(), message).into_compile_error());
        }
        let mut body = Group::new(Delimiter::Brace, inside);
        body.set_span(self.body.span());
        quote!(#(#attributes)* #head #body #errors)
    }
}

/// Expands a method whose attributes of this macro, `ours`, have been removed.
fn written(method: Function, ours: &[Attribute], defaults: &Args) -> Result<Written> {
    let sig = &method.sig;
    let own = match ours {
        [] if sig.receiver().is_none() => return Ok(Written::Unlocked(method)),
        [] => None,
        [own] => Some(arguments(own)?),
        [_, second, ..] => return Err(twice(second)),
    };
    match &own {
        Some(own) if says_unlocked(own, sig)? => return Ok(Written::Unlocked(method)),
        None if sig.asyncness.is_none() && shape::returned_future(&sig.output).is_none() => {
            let message = format!(
                "`{}` is not an `async fn`, so it cannot take the lock of its `impl`; \
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
        return Ok(Written::Nameless(method));
    }
    let bound = bind::bind(args, Some(method), mistakes)?;
    Ok(Written::Locked(expand(&bound)))
}

/// Leaves a method that cannot be parsed to rustc, which reports why. If a newer rustc can parse it, the method
/// would silently run without its lock. So an error is added to its body.
fn half_typed(mut item: Vec<TokenTree>) -> TokenStream {
    let name = item.windows(2).find_map(|pair| match pair {
        [TokenTree::Ident(word), TokenTree::Ident(name)] if word == "fn" => Some(name.span()),
        _ => None,
    });
    if let Some(name) = name
        && let Some(TokenTree::Group(body)) = item.last_mut()
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

/// Returns the tokens in the parentheses of the attribute.
fn arguments(attribute: &Attribute) -> Result<TokenStream> {
    match &attribute.meta {
        Meta::Path(_) => Ok(TokenStream::new()),
        Meta::List(list) => Ok(list.tokens.clone()),
        Meta::NameValue(value) => Err(Error::new_spanned(
            &value.path,
            "write the arguments in parentheses, such as `#[etcd_locked(shared)]`",
        )),
    }
}

/// Returns true if the only argument of a method is `unlocked`. Refuses that word with other arguments, or misspelt.
fn says_unlocked(arguments: &TokenStream, sig: &Signature) -> Result<bool> {
    let args = Args::parse(arguments.clone(), &mut Vec::new());
    let alone = args.names.len() + args.given.len() == 1;
    for word in args.words() {
        let message = match word.to_string() {
            text if text == UNLOCKED && alone => return Ok(true),
            text if text == UNLOCKED => {
                format!("`{text}` cannot be combined with other arguments; remove it or them")
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

/// Refuses `unlocked` anywhere but on a method of an annotated block.
pub(crate) fn misplaced_unlocked(args: &Args) -> Option<Error> {
    let word = args.words().find(|word| *word == UNLOCKED)?;
    let message = "`unlocked` is for methods of an `impl` that has a lock, such as `#[etcd_locked(\"accounts/<self.id>\")]`; remove it here";
    Some(Error::new(word.span(), message))
}

/// Refuses a macro call that is not marked `unlocked`.
fn unseen_methods(call: &ImplItemMacro) -> Option<Error> {
    let mut ours = call.attrs.iter().filter(|attribute| is_ours(attribute)).peekable();
    let says_so = ours.peek().is_some()
        && ours.all(|own| arguments(own).is_ok_and(|it| it.to_string() == UNLOCKED));
    let name = &call.mac.path.segments.last()?.ident;
    let message = format!(
        "methods that `{name}!` writes would not take the lock of this `impl`; \
         move it to a separate `impl`, or write `#[etcd_locked({UNLOCKED})]` above it"
    );
    (!says_so).then(|| Error::new(name.span(), message))
}

/// Writes the errors behind the block. If `#[cfg]` leaves out an item, it leaves out the item's errors too.
fn reported(attributes: &[Attribute], mistakes: Error) -> TokenStream {
    let cfgs: Vec<_> = attributes.iter().filter(|it| it.path().is_ident("cfg")).collect();
    let errors = mistakes.into_iter().map(Error::into_compile_error);
    errors.map(|error| quote!(#(#cfgs)* #error)).collect()
}

/// Splits an item into its attributes and the rest.
fn outer_attributes(item: TokenStream) -> (Vec<Attribute>, TokenStream) {
    let split = |input: ParseStream<'_>| Ok((Attribute::parse_outer(input)?, input.parse()?));
    split.parse2(item.clone()).unwrap_or_else(|_half_typed| (Vec::new(), item))
}

/// Parses the items inside a block.
fn items(input: ParseStream<'_>) -> Result<Vec<Item>> {
    let mut items = Vec::new();
    let ahead = input.fork();
    if let Ok(inner) = ahead.call(Attribute::parse_inner) {
        input.advance_to(&ahead);
        items.push(Item::Other(quote!(#(#inner)*)));
    }
    while !input.is_empty() {
        items.push(item(input)?);
    }
    Ok(items)
}

/// Parses an item. One that cannot be parsed is taken as tokens, up to its `;` or braces.
fn item(input: ParseStream<'_>) -> Result<Item> {
    let ahead = input.fork();
    if let Ok(method) = ahead.call(Function::parse_tokens) {
        input.advance_to(&ahead);
        return Ok(Item::Method(Box::new(method)));
    }
    let ahead = input.fork();
    match ahead.parse() {
        Ok(ImplItem::Macro(call)) => {
            input.advance_to(&ahead);
            return Ok(Item::Macro(call));
        }
        Ok(item @ (ImplItem::Const(_) | ImplItem::Type(_))) => {
            input.advance_to(&ahead);
            return Ok(Item::Other(item.into_token_stream()));
        }
        _ => {}
    }
    let mut tokens = Vec::new();
    while !input.is_empty() {
        let token: TokenTree = input.parse()?;
        let ends = match &token {
            TokenTree::Punct(punct) => punct.as_char() == ';',
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            _ => false,
        };
        tokens.push(token);
        if ends {
            break;
        }
    }
    Ok(Item::Other(half_typed(tokens)))
}

fn word(token: &TokenTree) -> Option<&Ident> {
    match token {
        TokenTree::Ident(word) => Some(word),
        _ => None,
    }
}
