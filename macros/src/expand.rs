//! Expansion: a bound function → its locked form. It only quotes, and cannot fail: `bind` has refused every mistake.

use std::collections::HashSet;
use std::time::Duration;

use proc_macro2::{Delimiter, Group, Ident, Literal, Span, TokenStream, TokenTree};
use quote::{ToTokens as _, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, LitStr, ReturnType, Type};

use crate::bind::{Bound, Name, Value};
use crate::function::Function;
use crate::options::{Options, literal};
use crate::shape::Frame;
use crate::value::{Given, OnHeld, OnLost, Release, Wait};

/// Expands a bound function into its locked form.
///
/// Input:
///
/// ```text
/// #[etcd_locked("orders/<id>", wait = "5s")]
/// async fn ship(id: u64) -> Result<Receipt, AppError> { BODY }
/// ```
///
/// Output:
///
/// ```text
/// async fn ship(id: u64) -> Result<Receipt, AppError> {
///     ::etcd_locked::__register_template!("orders/<id>", .., "wait = \"5s\"");
///     let __lock = {
///         let __names = [::etcd_locked::__private::name("orders/<id>", &[&id])];
///         ::etcd_locked::__private::lock(&__names, const { &::etcd_locked::__private::Site { .. } })
///     };
///     let (__call, __type) = ::etcd_locked::__private::hold(__lock, async move {
///         #[allow(..)]
///         if false { let __ret: Result<Receipt, AppError> = loop {}; return __ret; }
///         { BODY }
///     });
///     let __result = __call.await;
///     let __type = __type;
///     ::etcd_locked::__private::finish(__result)
/// }
/// ```
///
/// `__type`, a `PhantomData` of the body, lives across the await. When rustc proves that the future is `Send`, it meets the body there
/// first, at a smaller depth than in `__call`. So functions can be nested more deeply before rustc reaches its recursion limit.
///
/// With `proof = order` the names are values. The proof is made from them in the body, where the call's locks are available:
///
/// ```text
///     let __lock = ::etcd_locked::__private::lock(&[], ..);
///     let (__lock, __proof0) = __lock.prove(Order { id });
///     .. async move {
///         ..
///         let order = &__proof0.locked::<::etcd_locked::__private::Exclusive>();
///         { BODY }
///     }
/// ```
///
/// Each name takes the lock by value, and returns it with the proof: a borrowed lock would stay in the future.
///
/// An option that is an expression, such as `permits = config.limit`, is evaluated after the names:
///
/// ```text
///         let __permits: ::core::primitive::u16 = { config.limit };
///         ::etcd_locked::__private::lock(&__names, ..).permits(__permits)
/// ```
///
/// The names are in a separate block, or with `proof` in one statement each: their `&dyn LockKey` must be dropped before the await,
/// or the future is not `Send`. With `detach` the call is `detach(__lock, async move { .. }).await`. If the function returns one
/// `async move` block instead, all of this goes into that block, except the registration.
pub(crate) fn expand(bound: &Bound) -> TokenStream {
    let here = Span::mixed_site();
    let (lock, conversion) = (lock(bound), conversion(bound));
    let body = body(bound, &lock);
    let private = private(&bound.options, here);
    let result = if bound.options.detach {
        // By value: the body moves to another task, and does not enlarge this future.
        quote_spanned!(here=> let __result = #private::detach(__lock, async move #body).await;)
    } else {
        quote_spanned! {here=>
            let (__call, __type) = #private::hold(__lock, async move #body);
            let __result = __call.await;
            let __type = __type;
        }
    };
    let statements = quote_spanned! {here=>
        #lock
        #result
        #conversion
    };
    let registration = registration(bound);
    let (function_body, statements) = match &bound.shape.frame {
        Frame::AsyncFn => (&bound.shape.body, statements),
        Frame::Block { constructor, function } => {
            let block = quote_spanned!(here=> async move { #statements });
            // No parentheses around a block without a constructor: rustc would call them unused.
            let boxed =
                (!constructor.is_empty()).then(|| quote_spanned!(here=> #constructor(#block)));
            (function, boxed.unwrap_or(block))
        }
    };
    // The span of the user's braces: with ours, rustc takes the function for generated code, and does not report `dead_code`.
    let braced = braces(quote!(#registration #statements), function_body.span());
    let Function { attrs, vis, sig, .. } = &bound.function;
    quote!(#(#attrs)* #vis #sig #braced)
}

/// Writes `::etcd_locked::__register_template!("orders/<id>", "shop::ship", "wait = \"5s\"");` for each template, with the
/// number of `permits` behind that if it is a literal. Declared names register themselves.
fn registration(bound: &Bound) -> TokenStream {
    let here = Span::mixed_site();
    let krate = krate(&bound.options, here);
    let function = function(bound);
    let options = LitStr::new(&bound.written, here);
    let permits = literal(&bound.options.permits).map(|permits| quote_spanned!(here=> , #permits));
    let templates = bound.names.iter().filter_map(|name| match name {
        Name::Template { text, .. } => Some(text),
        Name::Expression(_) => None,
    });
    let register = |text| quote_spanned!(here=> #krate::__register_template!(#text, #function, #options #permits););
    templates.map(register).collect()
}

/// Writes `::etcd_locked::__private::name("orders/<id>", &[&id])`, or `..::name_of(&Order { id })`.
fn rendered(bound: &Bound, name: &Name) -> TokenStream {
    let here = Span::mixed_site();
    let private = private(&bound.options, here);
    match name {
        Name::Template { text, values } => {
            // Located at the template, where rustc reports a value that is not a `LockKey`.
            let there = here.located_at(text.span());
            let values = values
                .iter()
                .map(|Value { head, fields }| quote_spanned!(there=> &#head #(.#fields)*));
            let values = quote_spanned!(there=> &[#(#values),*]);
            quote_spanned!(here=> #private::name(#text, #values))
        }
        Name::Expression(name) => {
            let there = here.located_at(name.span());
            let name = quote_spanned!(there=> &#name);
            quote_spanned!(here=> #private::name_of(#name))
        }
    }
}

/// Writes `let (__lock, __proof0) = __lock.prove(Order { id });` for each name, with `proof`.
fn proofs(bound: &Bound) -> TokenStream {
    let here = Span::mixed_site();
    let variables = bound.options.proof.iter().flat_map(|it| &it.variables);
    let each = variables.zip(&bound.names).enumerate();
    let proofs = each.map(|(at, (variable, name))| {
        let proof = match variable {
            Some(_) => proof_variable(at, here).into_token_stream(),
            None => quote_spanned!(here=> _),
        };
        let name = match name {
            Name::Template { .. } => rendered(bound, name),
            Name::Expression(name) => name.to_token_stream(),
        };
        quote_spanned!(here=> let (__lock, #proof) = __lock.prove(#name);)
    });
    proofs.collect()
}

/// Writes `__proof0`.
fn proof_variable(at: usize, span: Span) -> Ident {
    Ident::new(&format!("__proof{at}"), span)
}

/// Writes `let order = &__proof0.locked::<::etcd_locked::__private::Exclusive>();` for each variable of `proof`.
///
/// The variable is a reference to a temporary, located at the user's variable. So a proof that leaves the body gives one error,
/// which shows none of our code.
fn proof_variables(bound: &Bound) -> TokenStream {
    let variables = bound.options.proof.iter().flat_map(|it| &it.variables);
    let bindings = variables.enumerate().filter_map(|(at, variable)| {
        let variable = variable.as_ref()?;
        let there = Span::mixed_site().located_at(variable.span());
        let private = private(&bound.options, there);
        let mode = match (bound.options.shared, &bound.options.permits) {
            (true, _) => quote_spanned!(there=> #private::Shared),
            (_, Some(_)) => quote_spanned!(there=> #private::Permit),
            _ => quote_spanned!(there=> #private::Exclusive),
        };
        let proof = proof_variable(at, there);
        Some(quote_spanned!(there=> let #variable = &#proof.locked::<#mode>();))
    });
    bindings.collect()
}

/// Writes `::core::concat!(::core::module_path!(), "::ship")`.
fn function(bound: &Bound) -> TokenStream {
    let here = Span::mixed_site();
    let name: &Ident = &bound.function.sig.ident;
    let name = LitStr::new(&format!("::{}", name.unraw()), here);
    quote_spanned!(here=> ::core::concat!(::core::module_path!(), #name))
}

/// Writes `let __lock = { let __names = [..]; ::etcd_locked::__private::lock(&__names, const { &Site { .. } }) };`.
///
/// With `when`, all of it is in an `if`. The user's expression has its own statement: not every expression may be a condition.
fn lock(bound: &Bound) -> TokenStream {
    let here = Span::mixed_site();
    let private = private(&bound.options, here);
    let (limits, methods) = (limits(&bound.options), methods(bound));
    if bound.options.proof.is_some() {
        let (begun, proofs) = (begun(bound, &quote_spanned!(here=> [])), proofs(bound));
        let changed =
            (!methods.is_empty()).then(|| quote_spanned!(here=> let __lock = __lock #methods;));
        return quote_spanned! {here=>
            let __lock = #begun;
            #proofs
            #limits
            #changed
        };
    }
    let names = bound.names.iter().map(|name| rendered(bound, name));
    let begun = begun(bound, &quote_spanned!(here=> __names));
    let lock = quote_spanned! {here=>
        {
            let __names = [#(#names),*];
            #limits
            #begun #methods
        }
    };
    let lock = match &bound.options.when {
        None => lock,
        Some(when) => {
            let there = here.located_at(when.span()); // where rustc reports a value that is not a `bool`
            let asked = quote_spanned!(there=> let __when: bool = #when;);
            quote_spanned!(here=> { #asked if __when #lock else { #private::unlocked() } })
        }
    };
    quote_spanned!(here=> let __lock = #lock;)
}

/// Writes `let __permits: ::core::primitive::u16 = { config.limit };` for each such option that is an expression.
///
/// Each is a separate statement, so that the borrows of the expression end before the lock is acquired. It is in braces, and
/// located at the expression. So rustc reports a wrong type there, once, and shows none of our code.
fn limits(options: &Options) -> TokenStream {
    let here = Span::mixed_site();
    let limit = |name: &str, value: Option<&Expr>, of: &TokenStream| {
        let value = value?;
        let there = here.located_at(value.span());
        let variable = Ident::new(name, here);
        let value = braces(value.to_token_stream(), there);
        Some(quote_spanned!(there=> let #variable: #of = #value;))
    };
    let time = quote_spanned!(here=> ::core::time::Duration);
    let number = quote_spanned!(here=> ::core::primitive::u16);
    let limits = [
        limit("__wait", expression(&options.wait), &time),
        limit("__ttl", expression(&options.ttl), &time),
        limit("__max_hold", expression(&options.max_hold), &time),
        limit("__min_hold", expression(&options.min_hold), &time),
        limit("__permits", expression(&options.permits), &number),
    ];
    limits.into_iter().flatten().collect()
}

/// Writes `::etcd_locked::__private::lock(&__names, const { &Site { .. } })`.
fn begun(bound: &Bound, names: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let private = private(&bound.options, here);
    let function = function(bound);
    let wait = option(literal(&bound.options.wait).map(|wait| match *wait {
        Wait::Once => quote_spanned!(here=> #private::Wait::Once),
        Wait::Forever => quote_spanned!(here=> #private::Wait::Forever),
        Wait::For(time) => {
            let time = duration(time);
            quote_spanned!(here=> #private::Wait::For(#time))
        }
    }));
    let ttl = option(literal(&bound.options.ttl).copied().map(duration));
    let site = quote_spanned! {here=>
        const {
            &#private::Site {
                function: #function,
                wait: #wait,
                ttl: #ttl,
            }
        }
    };
    quote_spanned!(here=> #private::lock(&#names, #site))
}

/// Writes a method call for each option.
fn methods(bound: &Bound) -> TokenStream {
    let here = Span::mixed_site();
    let options = &bound.options;
    let number = |permits| Literal::u16_suffixed(permits).into_token_stream();
    let max_hold = given(&options.max_hold, duration, "__max_hold");
    let min_hold = given(&options.min_hold, duration, "__min_hold");
    let permits = given(&options.permits, number, "__permits");
    let methods = [
        options.locks.as_ref().map(|locks| quote_spanned!(here=> .on(#locks))),
        expression(&options.wait).map(|_| quote_spanned!(here=> .wait(__wait))),
        expression(&options.ttl).map(|_| quote_spanned!(here=> .ttl(__ttl))),
        options.wait_until.as_ref().map(
            |deadline| quote_spanned!(here.located_at(deadline.span())=> .wait_until(#deadline)),
        ),
        max_hold.map(|limit| quote_spanned!(here=> .max_hold(#limit))),
        options.reentrant.then(|| quote_spanned!(here=> .reentrant())),
        min_hold.map(|time| quote_spanned!(here=> .min_hold(#time))),
        options.shared.then(|| quote_spanned!(here=> .shared())),
        permits.map(|permits| quote_spanned!(here=> .permits(#permits))),
        (options.on_lost == OnLost::Continue)
            .then(|| quote_spanned!(here=> .continued_when_lost())),
        (options.release == Release::Background)
            .then(|| quote_spanned!(here=> .released_in_background())),
    ];
    methods.into_iter().flatten().collect()
}

/// Writes the user's tokens as the body of an `async move` block, after a `return` that never runs.
///
/// That `return` pins the block's type to the declared one: coercions work, and rustc reports a wrong type where the user
/// wrote it. `lock` holds the statements that make the lock.
fn body(bound: &Bound, lock: &TokenStream) -> TokenTree {
    let here = Span::mixed_site();
    let pinned = pinned(&bound.shape.output);
    let lints = lints();
    // The body has a separate scope. Otherwise a `use Enum::*` in it could change the meaning of the pinned type. Its braces
    // do not have the user's span, because rustc would call them unused.
    let user = &bound.shape.body;
    let statements = match &bound.shape.frame {
        Frame::AsyncFn => user.stream(),
        Frame::Block { .. } => with_used_arguments(user.stream(), &identifiers(lock)),
    };
    let scope = braces(statements, here.located_at(user.span()));
    let proofs = proof_variables(bound);
    let statements = quote_spanned! {here=>
        #[allow(#lints)]
        if false {
            let __ret: #pinned = loop {};
            return __ret;
        }
        #proofs
        #scope
    };
    braces(statements, here)
}

/// Allows variables to be unused if `#[async_trait]` declares them again in the block, `let id = id;`, and the lock uses the
/// arguments themselves.
fn with_used_arguments(block: TokenStream, used: &HashSet<String>) -> TokenStream {
    let tokens: Vec<TokenTree> = block.into_iter().collect();
    let mut allowed = TokenStream::new();
    for (at, token) in tokens.iter().enumerate() {
        if declares_argument(&tokens[at..]).is_some_and(|name| used.contains(&name)) {
            allowed.extend(quote!(#[allow(unused_variables)]));
        }
        allowed.extend([token.clone()]);
    }
    allowed
}

/// Returns `id` of `let id = id;`, with or without `mut`.
fn declares_argument(tokens: &[TokenTree]) -> Option<String> {
    let word = |token: &TokenTree| match token {
        TokenTree::Ident(_) | TokenTree::Punct(_) => token.to_string(),
        TokenTree::Group(_) | TokenTree::Literal(_) => String::new(),
    };
    let words: Vec<String> = tokens.iter().take(6).map(word).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["let", "mut", name, "=", argument, ";"] | ["let", name, "=", argument, ";", ..] => {
            (name == argument).then(|| name.to_owned())
        }
        _ => None,
    }
}

/// Collects the identifiers of these tokens.
fn identifiers(tokens: &TokenStream) -> HashSet<String> {
    let mut found = HashSet::new();
    for token in tokens.clone() {
        match token {
            TokenTree::Ident(word) => drop(found.insert(word.to_string())),
            TokenTree::Group(group) => found.extend(identifiers(&group.stream())),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    found
}

/// Lists the lints that the pin would trigger. They are allowed only there: an `allow` on the function would hide lints in
/// the user's code.
fn lints() -> TokenStream {
    quote! {
        unreachable_code, clippy::diverging_sub_expression, clippy::empty_loop, clippy::let_unit_value,
        clippy::let_with_type_underscore, clippy::needless_return
    }
}

/// Spells the declared return type so that a `let` accepts it: `impl Trait` becomes `_`.
fn pinned(output: &ReturnType) -> Type {
    struct Infer;
    impl VisitMut for Infer {
        fn visit_type_mut(&mut self, ty: &mut Type) {
            if let Type::ImplTrait(_) = ty {
                *ty = Type::Verbatim(quote!(_));
            }
            visit_mut::visit_type_mut(self, ty);
        }
    }
    match output {
        ReturnType::Default => Type::Verbatim(quote!(())),
        ReturnType::Type(_, ty) => {
            let mut ty = Type::clone(ty);
            Infer.visit_type_mut(&mut ty);
            ty
        }
    }
}

/// Writes the one conversion of a lock error to the function's own value.
///
/// It is located at the return type, so that rustc reports a type without a conversion there, and once.
fn conversion(bound: &Bound) -> TokenStream {
    let Options { on_held, map_err, on_error, .. } = &bound.options;
    let there = Span::mixed_site().located_at(match &bound.shape.output {
        ReturnType::Default => bound.function.sig.ident.span(),
        ReturnType::Type(_, ty) => ty.span(),
    });
    let private = private(&bound.options, there);
    let result = match (on_held, map_err, on_error) {
        (OnHeld::Error, None, None) => return quote_spanned!(there=> #private::finish(__result)),
        (OnHeld::Skip, None, None) => return quote_spanned!(there=> #private::skip(__result)),
        (OnHeld::Error, ..) => quote_spanned!(there=> __result),
        (OnHeld::Skip, ..) => quote_spanned!(there=> #private::skip_held(__result)),
    };
    match on_error {
        Some(f) => quote_spanned!(there=> #private::on_error(#result, #f)),
        None => quote_spanned!(there=> #private::map_err(#result, #map_err)),
    }
}

/// Writes `::etcd_locked::__private` at `span`, or the path of `crate =`.
///
/// The tokens of that path keep the user's span, so rustc reports a wrong path once, although it is used several times.
fn private(options: &Options, span: Span) -> TokenStream {
    let krate = krate(options, span);
    quote_spanned!(span=> #krate::__private)
}

fn krate(options: &Options, span: Span) -> TokenStream {
    match &options.krate {
        None => quote_spanned!(span=> ::etcd_locked),
        Some(path) => quote!(#path),
    }
}

fn duration(time: Duration) -> TokenStream {
    // `value` has already refused times above a year.
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let millis = Literal::u64_unsuffixed(millis);
    quote_spanned!(Span::mixed_site()=> ::core::time::Duration::from_millis(#millis))
}

fn expression<T>(value: &Option<Given<T>>) -> Option<&Expr> {
    value.as_ref().and_then(Given::expression)
}

/// Writes the literal, or the variable that has the expression's value.
fn given<T: Copy>(
    value: &Option<Given<T>>,
    write: impl FnOnce(T) -> TokenStream,
    variable: &str,
) -> Option<TokenStream> {
    value.as_ref().map(|value| match value {
        Given::Literal(value) => write(*value),
        Given::Expression(_) => Ident::new(variable, Span::mixed_site()).into_token_stream(),
    })
}

fn option(value: Option<TokenStream>) -> TokenStream {
    match value {
        Some(value) => quote_spanned!(Span::mixed_site()=> ::core::option::Option::Some(#value)),
        None => quote_spanned!(Span::mixed_site()=> ::core::option::Option::None),
    }
}

fn braces(statements: TokenStream, span: Span) -> TokenTree {
    let mut group = Group::new(Delimiter::Brace, statements);
    group.set_span(span);
    group.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expands_to_the_locked_form() {
        let expansion = crate::locked(
            quote!("orders/<id>", wait = "5s"),
            &quote! {
                #[inline]
                pub(crate) async fn ship<T>(id: u64) -> Result<Receipt, AppError> where T: Copy { let n = s.; 5 }
            },
        );
        let wanted = quote! {
            #[inline]
            pub(crate) async fn ship<T>(id: u64) -> Result<Receipt, AppError> where T: Copy {
                ::etcd_locked::__register_template!(
                    "orders/<id>", ::core::concat!(::core::module_path!(), "::ship"), "wait = \"5s\""
                );
                let __lock = {
                    let __names = [::etcd_locked::__private::name("orders/<id>", &[&id])];
                    ::etcd_locked::__private::lock(&__names, const { &::etcd_locked::__private::Site {
                        function: ::core::concat!(::core::module_path!(), "::ship"),
                        wait: ::core::option::Option::Some(::etcd_locked::__private::Wait::For(
                            ::core::time::Duration::from_millis(5000))),
                        ttl: ::core::option::Option::None,
                    } })
                };
                let (__call, __type) = ::etcd_locked::__private::hold(__lock, async move {
                    #[allow(
                        unreachable_code, clippy::diverging_sub_expression, clippy::empty_loop, clippy::let_unit_value,
                        clippy::let_with_type_underscore, clippy::needless_return
                    )]
                    if false {
                        let __ret: Result<Receipt, AppError> = loop {};
                        return __ret;
                    }
                    { let n = s.; 5 }
                });
                let __result = __call.await;
                let __type = __type;
                ::etcd_locked::__private::finish(__result)
            }
        };
        assert_eq!(expansion.expect("no mistakes").to_string(), wanted.to_string());
    }
}
