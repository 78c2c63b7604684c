//! Declared names: `lock_names! { pub Order = "orders/<id: u64>"; }` → one struct per name.
//!
//! A mistake in one declaration does not affect the other structs. Its own struct has what was parsed until then.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::parse::{ParseStream, Parser as _};
use syn::{Attribute, Error, Ident, LitStr, Result, Token, Visibility};

use crate::bind::span_of;
use crate::field::{Field, lifetime};
use crate::overlap::{Overlap, Segment, overlap, segments};
use crate::template::Template;

/// Keywords that users write before a name by habit.
const KEYWORDS: &[&str] = &["struct", "const", "static", "type", "enum", "fn", "let", "name"];

/// Declares the names. Input: `path::to::runtime; ` and the declarations, as `lock_names!` passes them.
pub(crate) fn declare(input: TokenStream) -> TokenStream {
    let mut mistakes = Vec::new();
    let mut krate = TokenStream::new();
    let mut names = Vec::new();
    let read = |input: ParseStream<'_>| {
        while !input.is_empty() && !input.peek(Token![;]) {
            krate.extend([input.parse::<TokenTree>()?]);
        }
        input.parse::<Option<Token![;]>>()?;
        while !input.is_empty() {
            names.extend(declaration(input, &mut mistakes));
        }
        Ok(())
    };
    if let Err(error) = read.parse2(input) {
        mistakes.push(error);
    }
    let names: Vec<Name> =
        names.into_iter().map(|declaration| Name::of(declaration, &mut mistakes)).collect();
    let twice = clashes(&names, &mut mistakes);
    let once = names.iter().zip(twice).filter(|(_, twice)| !twice);
    let structs = once.map(|(name, _)| expand(name, &krate));
    let mistakes = mistakes.into_iter().map(Error::into_compile_error);
    quote!(#(#structs)* #(#mistakes)*)
}

/// Declaration such as `/// docs  pub Order = "orders/<id: u64>";`.
struct Declaration {
    attrs: Vec<Attribute>,
    vis: Visibility,
    ident: Ident,
    /// Template; `None` only if a mistake was reported.
    template: Option<LitStr>,
}

/// Reads one declaration, up to the next `;` even after a mistake.
fn declaration(input: ParseStream<'_>, mistakes: &mut Vec<Error>) -> Option<Declaration> {
    let head = |input: ParseStream<'_>| {
        let attrs = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        let word = input.call(Ident::parse_any).map_err(|error| {
            Error::new(
                error.span(),
                "expected a name and its template, such as `pub Order = \"orders/<id: u64>\";`",
            )
        })?;
        if KEYWORDS.iter().any(|keyword| word == keyword) && input.peek(Ident::peek_any) {
            let name: Ident = input.call(Ident::parse_any)?;
            let message = format!(
                "`{word}` is not needed in `lock_names!`; write `{name} = \"orders/<id: u64>\";`"
            );
            return Err(Error::new(word.span(), message));
        }
        // Parsed as an identifier, so that a keyword is refused here rather than at the struct.
        let ident = syn::parse2(TokenTree::from(word.clone()).into()).map_err(|_| {
            Error::new(word.span(), format!("`{word}` is a keyword; choose another name"))
        })?;
        Ok(Declaration { attrs, vis, ident, template: None })
    };
    let mut declaration = match head(input) {
        Ok(declaration) => declaration,
        Err(mistake) => {
            mistakes.push(mistake);
            skip_past_semicolon(input);
            return None;
        }
    };
    match template(input, &declaration.ident) {
        Ok(template) => declaration.template = Some(template),
        Err(mistake) => {
            mistakes.push(mistake);
            skip_past_semicolon(input);
            return Some(declaration);
        }
    }
    if input.parse::<Token![;]>().is_err() {
        let shown =
            declaration.template.as_ref().map(|text| text.token().to_string()).unwrap_or_default();
        let message = format!("missing `;` after `{shown}`");
        let span = declaration.template.as_ref().map_or_else(|| input.span(), LitStr::span);
        mistakes.push(Error::new(span, message));
        // These tokens begin the next declaration, so they are not skipped.
        if !input.peek(Token![pub]) && !input.peek(Token![#]) && !input.peek(Ident) {
            skip_past_semicolon(input);
        }
    }
    Some(declaration)
}

/// Reads `= "orders/<id: u64>"`.
fn template(input: ParseStream<'_>, ident: &Ident) -> Result<LitStr> {
    let example = format!("write `{ident} = \"orders/<id: u64>\";`");
    if input.parse::<Token![=]>().is_err() {
        let message = format!("`{ident}` has no template; {example}");
        return Err(Error::new(ident.span(), message));
    }
    let value = input.cursor().token_tree().map(|(token, _)| token.span());
    input.parse().map_err(|_| {
        let message = format!("the template of `{ident}` must be a string literal; {example}");
        Error::new(value.unwrap_or_else(|| ident.span()), message)
    })
}

fn skip_past_semicolon(input: ParseStream<'_>) {
    while !input.is_empty() && input.parse::<Option<Token![;]>>().ok().flatten().is_none() {
        if input.parse::<TokenTree>().is_err() {
            return;
        }
    }
}

/// Name declared by one declaration, as far as that could be parsed.
struct Name {
    attrs: Vec<Attribute>,
    vis: Visibility,
    ident: Ident,
    /// Template as it is written, with the types.
    template: LitStr,
    /// The template without the types.
    shown: String,
    /// Segments of the template. Empty after a mistake; then the name is not compared with others.
    segments: Vec<Segment>,
    fields: Vec<Field>,
}

impl Name {
    fn of(declaration: Declaration, mistakes: &mut Vec<Error>) -> Self {
        let Declaration { attrs, vis, ident, template } = declaration;
        let before = mistakes.len();
        let unwritten = template.is_none();
        let template = template.unwrap_or_else(|| LitStr::new("", ident.span()));
        let text = template.value();
        let parsed = if unwritten { Template::default() } else { Template::parse_typed(&text) };
        let mut refuse = |mistake: std::ops::Range<usize>, message: String| {
            mistakes.push(Error::new(span_of(&template, &text, mistake), message));
        };
        let mut fields: Vec<Field> = Vec::new();
        for placeholder in &parsed.placeholders {
            match Field::of(placeholder, span_of(&template, &text, placeholder.range.clone())) {
                Ok(field) if fields.iter().any(|other| other.name == field.name) => refuse(
                    placeholder.range.clone(),
                    format!(
                        "`{}` has two placeholders named `{}`; give each its own name",
                        ident, field.name
                    ),
                ),
                Ok(field) => fields.push(field),
                Err(message) => refuse(placeholder.range.clone(), message),
            }
        }
        for mistake in &parsed.mistakes {
            refuse(mistake.range.clone(), mistake.message.clone());
        }
        let good = mistakes.len() == before && !unwritten;
        Self {
            attrs,
            vis,
            ident,
            shown: parsed.untyped(&text),
            segments: if good { segments(&text, &parsed) } else { Vec::new() },
            template,
            fields,
        }
    }

    /// Returns the `cfg` attributes, which apply to every item of the declaration.
    fn cfgs(&self) -> impl Iterator<Item = &Attribute> {
        self.attrs.iter().filter(|attr| attr.path().is_ident("cfg"))
    }
}

/// Refuses every name that overlaps an earlier one. Returns for each name whether its identifier was declared before; such a
/// name gets no struct.
fn clashes(names: &[Name], mistakes: &mut Vec<Error>) -> Vec<bool> {
    let mut twice = vec![false; names.len()];
    for (n, name) in names.iter().enumerate() {
        for other in &names[..n] {
            let same_ident = other.ident == name.ident;
            if same_ident && name.cfgs().next().is_some() && other.cfgs().next().is_some() {
                continue; // alternatives by `cfg`
            }
            if same_ident {
                twice[n] = true;
                let message =
                    format!("`{}` is declared twice; give one of them another name", name.ident);
                mistakes.push(Error::new(name.ident.span(), message));
                break;
            }
            if name.segments.is_empty() || other.segments.is_empty() {
                continue;
            }
            if let Some(overlap) = overlap(&other.segments, &name.segments) {
                mistakes.push(Error::new(name.template.span(), clash(other, name, overlap)));
                break;
            }
        }
    }
    twice
}

fn clash(other: &Name, name: &Name, overlap: Overlap) -> String {
    let (text, other_text) = (name.template.value(), other.template.value());
    let (name, other) = (&name.ident, &other.ident);
    let how = match overlap {
        Overlap::Same => {
            format!("`{name}` and `{other}` can be the same key, as `{text}` and `{other_text}`")
        }
        Overlap::Prefix => format!(
            "`{other}` is a path-prefix of `{name}` (`{other_text}` of `{text}`), so their keys would be mixed"
        ),
        Overlap::Extends => format!(
            "`{name}` is a path-prefix of `{other}` (`{text}` of `{other_text}`), so their keys would be mixed"
        ),
    };
    format!("{how}; give one of them another literal segment")
}

fn expand(name: &Name, krate: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let Name { attrs, vis, ident, template, shown, fields, .. } = name;
    let there = here.located_at(template.span());
    // The user's spans, with their hygiene: with ours, rustc takes the whole macro for the struct's definition.
    let keyword = quote_spanned!(ident.span()=> struct);
    let cfgs: Vec<_> = name.cfgs().collect();
    let borrowed = fields.iter().find(|field| field.borrows);
    let generics = borrowed.map(|_| {
        let lifetime = lifetime(template.span());
        quote!(<#lifetime>)
    });
    let elided = borrowed.map(|_| quote_spanned!(here=> <'_>));
    let body = if fields.is_empty() {
        quote_spanned!(template.span()=> ;)
    } else {
        let docs = fields.iter().map(|field| format!("Value of `<{}>` in the name.", field.name));
        let names = fields.iter().map(|field| &field.name);
        let types = fields.iter().map(|field| &field.ty);
        quote_spanned!(template.span()=> { #(#[doc = #docs] #vis #names: #types,)* })
    };
    // A proof may outlive what the name borrows, so it keeps the name's text.
    let (held, kept, keep) = match borrowed {
        Some(_) => (
            quote_spanned!(here=> #ident<'static>),
            quote_spanned!(here=> #krate::Name),
            quote_spanned!(here=> ::core::clone::Clone::clone(name)),
        ),
        None => (quote!(Self), quote!(Self), quote_spanned!(here=> { let _ = name; self })),
    };
    let names = fields.iter().map(|field| &field.name);
    let values = quote_spanned!(there=> &[#(&self.#names),*]);
    let path = LitStr::new(&format!("::{}", ident.unraw()), here);
    // With the types: two names may differ only in their types.
    let registered = (!template.value().is_empty()).then(|| {
        quote_spanned! {here=>
            #(#cfgs)*
            #krate::__register_template!(#template, ::core::concat!(::core::module_path!(), #path));
        }
    });
    quote_spanned! {here=>
        #(#attrs)*
        #vis #keyword #ident #generics #body

        #(#cfgs)*
        #[allow(deprecated)]
        impl #ident #elided {
            /// The name's template, without types.
            #vis const TEMPLATE: &'static str = #shown;
        }

        #(#cfgs)*
        #[allow(deprecated)]
        #[automatically_derived]
        impl #krate::LockName for #ident #elided {
            type Held = #held;
            type Kept = #kept;

            fn lock_name(&self) -> #krate::Name {
                #krate::__private::name(Self::TEMPLATE, #values)
            }

            fn keep(self, name: &#krate::Name) -> #kept {
                #keep
            }
        }

        /// Prints the template only: the values may be personal data.
        #(#cfgs)*
        #[allow(deprecated)]
        #[automatically_derived]
        impl ::core::fmt::Debug for #ident #elided {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.write_str(Self::TEMPLATE)
            }
        }

        #registered
    }
}
