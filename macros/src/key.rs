//! Derive macro `LockKey`, for types that hold one value: a struct with one field, and an enum without fields.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{
    Data, DataEnum, DataStruct, DeriveInput, Error, Ident, LitStr, Path, Result, parse_quote,
};

use crate::value::absolute_path;

/// Derives `LockKey`. Output for `struct OrderId(u64)`:
///
/// ```text
/// impl ::etcd_locked::LockKey for OrderId {
///     fn write(&self, out: &mut ::etcd_locked::Segment<'_>) -> ::core::fmt::Result {
///         <u64 as ::etcd_locked::LockKey>::write(&self.0, out)
///     }
/// }
/// ```
///
/// An enum writes the variant's name as it is declared.
pub(crate) fn derive(input: TokenStream) -> Result<TokenStream> {
    let DeriveInput { ident, mut generics, data, attrs, .. } = syn::parse2(input)?;
    let here = Span::mixed_site();
    let krate = krate(&attrs)?;
    let write = match data {
        Data::Struct(data) => {
            let field = only_field(&ident, data)?;
            let ty = &field.ty;
            if !generics.params.is_empty() {
                generics.make_where_clause().predicates.push(parse_quote!(#ty: #krate::LockKey));
            }
            let name = match field.ident {
                Some(name) => quote!(#name),
                None => quote!(0),
            };
            // Located at the type, where rustc reports a type that is not a key.
            let there = here.located_at(ty.span());
            let write = quote_spanned!(there=> <#ty as #krate::LockKey>::write);
            quote_spanned!(here=> #write(&self.#name, out))
        }
        Data::Enum(data) => {
            let variants = variants(&ident, &data)?;
            let names =
                variants.iter().map(|variant| LitStr::new(&variant.unraw().to_string(), here));
            quote_spanned! {here=>
                ::core::fmt::Write::write_str(out, match self { #(Self::#variants => #names,)* })
            }
        }
        Data::Union(data) => {
            let message = format!(
                "a union does not know which field it holds; implement `LockKey` for `{ident}` by hand"
            );
            return Err(Error::new(data.union_token.span, message));
        }
    };
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    Ok(quote_spanned! {here=>
        #[allow(deprecated)]
        #[automatically_derived]
        impl #impl_generics #krate::LockKey for #ident #type_generics #where_clause {
            fn write(&self, out: &mut #krate::Segment<'_>) -> ::core::fmt::Result {
                #write
            }
        }
    })
}

/// Returns the only field of a newtype.
fn only_field(ident: &Ident, data: DataStruct) -> Result<syn::Field> {
    let count = data.fields.len();
    let mut fields = data.fields.into_iter();
    match (fields.next(), fields.next()) {
        (Some(field), None) => Ok(field),
        (None, _) => Err(Error::new(
            ident.span(),
            format!(
                "`{ident}` has no value to write; lock a literal name instead of a placeholder"
            ),
        )),
        (Some(_), Some(second)) => Err(Error::new_spanned(
            second,
            format!(
                "`{ident}` has {count} fields, and a `LockKey` is one value; \
                 give each its own placeholder, or implement `LockKey` by hand"
            ),
        )),
    }
}

fn variants<'a>(ident: &Ident, data: &'a DataEnum) -> Result<Vec<&'a Ident>> {
    if data.variants.is_empty() {
        let message = format!("`{ident}` has no variants, so there is no value to write");
        return Err(Error::new(ident.span(), message));
    }
    let carrying = data.variants.iter().filter(|variant| !variant.fields.is_empty());
    let mistakes = carrying.map(|variant| {
        let message = format!(
            "`{}` carries a value, and only an enum without fields can be a `LockKey`; implement it by hand for `{ident}`",
            variant.ident
        );
        Error::new_spanned(&variant.fields, message)
    });
    match mistakes.reduce(|mut all, next| {
        all.combine(next);
        all
    }) {
        Some(mistakes) => Err(mistakes),
        None => Ok(data.variants.iter().map(|variant| &variant.ident).collect()),
    }
}

/// Reads `#[lock_key(crate = path)]`, the path of a runtime that is renamed or re-exported.
fn krate(attrs: &[syn::Attribute]) -> Result<Path> {
    let mut krate: Option<Path> = None;
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("lock_key")) {
        attr.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                let message =
                    "`lock_key` has one option; write `#[lock_key(crate = ::etcd_locked)]`";
                return Err(Error::new_spanned(&meta.path, message));
            }
            krate = Some(absolute_path(meta.value()?)?);
            Ok(())
        })?;
    }
    Ok(krate.unwrap_or_else(|| parse_quote!(::etcd_locked)))
}
