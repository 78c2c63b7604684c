//! Editor's form of an annotated function: what rust-analyzer reads in the place of the expansion.
//!
//! In the expansion the body is an argument of `pin!`, below variables of ours. While a statement is half typed, that costs
//! errors of its own, and rust-analyzer offers those variables whatever their hygiene. In this form the body stands in the
//! function's own braces.

use std::env;
use std::path::Path;
use std::sync::LazyLock;

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};

use crate::bind::Bound;
use crate::expand::{
    braces, conversion, expand, guards, lock, name_to_prove, private, registration,
};
use crate::function::Function;
use crate::shape::Frame;

/// Expands a bound function for the compiler, or for rust-analyzer if that runs this macro.
pub(crate) fn expand_for_reader(bound: &Bound) -> TokenStream {
    static IS_ANALYZER: LazyLock<bool> =
        LazyLock::new(|| env::current_exe().is_ok_and(|program| is_analyzer(&program)));
    if *IS_ANALYZER { shown(bound) } else { expand(bound) }
}

/// Returns true for rust-analyzer and its server of proc macros, `rust-analyzer-proc-macro-srv`. No compiler is called that.
fn is_analyzer(program: &Path) -> bool {
    let name = program.file_stem().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("rust-analyzer"))
}

/// Writes the editor's form.
///
/// ```text
/// async fn ship(id: u64) -> Result<Receipt, AppError> {
///     if false {
///         const _: () = ::core::panic!(..);
///         let __lock = { let __names = [..]; ::etcd_locked::__private::lock(&__names, ..) };
///         let __result = loop {};
///         return ::etcd_locked::__private::finish(__result);
///     }
///     let order = &::etcd_locked::__private::prove(..).0.locked::<..>();      // with `guard = order`
///     BODY
/// }
/// ```
///
/// The first block has all that the attribute mentions, so it is checked, and counts as used. The form takes no lock:
/// `panic!` in a constant keeps every compiler from accepting it.
fn shown(bound: &Bound) -> TokenStream {
    let here = Span::mixed_site();
    let fuse = "`#[etcd_locked]` was expanded for an editor, without its lock";
    let (registration, lock, conversion) = (registration(bound), lock(bound), conversion(bound));
    // Without a variable of ours: the name is proven on the spot.
    let guards = guards(bound, |_, name, _| {
        let (private, name) = (private(&bound.options, here), name_to_prove(bound, name));
        quote_spanned!(here=> #private::prove(#name).0)
    });
    let mentioned = quote_spanned! {here=>
        if false {
            const _: () = ::core::panic!(#fuse);
            #registration
            #lock
            let __result = loop {};
            return #conversion;
        }
    };
    let (inner, statements) = inner_attributes(bound.shape.body.stream());
    let statements = quote!(#inner #mentioned #guards #statements);
    let locked = braces(statements, bound.shape.body.span());
    let body = match &bound.shape.frame {
        Frame::AsyncFn => locked,
        Frame::Block { constructor, function } => {
            let block = quote_spanned!(here=> async move #locked);
            let block = match constructor.is_empty() {
                true => block,
                false => quote_spanned!(here=> #constructor(#block)),
            };
            braces(block, function.span())
        }
    };
    let Function { attrs, vis, sig, .. } = &bound.function;
    quote!(#(#attrs)* #vis #sig #body)
}

/// Splits a body into its `#![..]` and the rest.
fn inner_attributes(body: TokenStream) -> (TokenStream, TokenStream) {
    let mut tokens: Vec<TokenTree> = body.into_iter().collect();
    let inner = tokens
        .chunks_exact(3)
        .take_while(|three| match three {
            [TokenTree::Punct(hash), TokenTree::Punct(not), TokenTree::Group(group)] => {
                hash.as_char() == '#'
                    && not.as_char() == '!'
                    && group.delimiter() == Delimiter::Bracket
            }
            _ => false,
        })
        .count();
    let rest = tokens.split_off(inner * 3);
    (tokens.into_iter().collect(), rest.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use crate::bind::bind;

    fn bound(args: TokenStream, item: TokenStream) -> Bound {
        let mut mistakes = Vec::new();
        let args = Args::parse(args, &mut mistakes);
        let function = Function::parse(item).expect("a function");
        bind(args, Some(function), mistakes).unwrap_or_else(|error| panic!("{error}"))
    }

    fn mentioned(bound: &Bound) -> TokenStream {
        let (registration, lock) = (registration(bound), lock(bound));
        quote! {
            if false {
                const _: () = ::core::panic!("`#[etcd_locked]` was expanded for an editor, without its lock");
                #registration
                #lock
                let __result = loop {};
                return ::etcd_locked::__private::finish(__result);
            }
        }
    }

    #[test]
    fn only_rust_analyzer_reads_the_editors_form() {
        let is = |program: &str| is_analyzer(Path::new(program));
        assert!(is("/libexec/rust-analyzer-proc-macro-srv") && is("rust-analyzer.exe"));
        assert!(!is("/bin/rustc") && !is("/rust-analyzer/bin/clippy-driver") && !is("rustdoc"));
        // These tests run under neither.
        let bound = bound(
            quote!("a"),
            quote!(
                async fn f() {}
            ),
        );
        assert_eq!(expand_for_reader(&bound).to_string(), expand(&bound).to_string());
    }

    #[test]
    fn body_is_below_no_variable_of_ours() {
        let bound = bound(
            quote!("orders/<id>"),
            quote! {
                pub async fn ship(id: u64) -> Result<(), E> { #![allow(unused)] let n = s. }
            },
        );
        let mentioned = mentioned(&bound);
        let wanted = quote! {
            pub async fn ship(id: u64) -> Result<(), E> { #![allow(unused)] #mentioned let n = s. }
        };
        assert_eq!(shown(&bound).to_string(), wanted.to_string());
    }

    #[test]
    fn body_has_the_variables_of_guard() {
        let bound = bound(
            quote!("a", Order { id }, guard = (_, order)),
            quote!(
                async fn f(id: u64) -> Result<(), E> {
                    g()
                }
            ),
        );
        let mentioned = mentioned(&bound);
        let wanted = quote! {
            async fn f(id: u64) -> Result<(), E> {
                #mentioned
                let order = &::etcd_locked::__private::prove(Order { id })
                    .0.locked::<::etcd_locked::__private::Exclusive>();
                g()
            }
        };
        assert_eq!(shown(&bound).to_string(), wanted.to_string());
    }

    #[test]
    fn returned_blocks_stay_where_they_are() {
        let bound = bound(
            quote!("a"),
            quote!(
                fn f() -> Pin<Box<dyn Future<Output = Result<u8, E>>>> {
                    Box::pin(async move { g() })
                }
            ),
        );
        let mentioned = mentioned(&bound);
        let body = quote!({ Box::pin(async move { #mentioned g() }) });
        let shown = shown(&bound).to_string();
        assert!(shown.ends_with(&body.to_string()), "{shown}");
    }
}
