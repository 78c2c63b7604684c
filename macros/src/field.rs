//! Field of a declared name's struct, made from a typed placeholder such as `<id: u64>`.

use proc_macro2::Span;
use syn::visit_mut::{self, VisitMut};
use syn::{GenericArgument, Ident, Lifetime, LitStr, PathArguments, Type};

use crate::template::Placeholder;

pub(crate) struct Field {
    pub(crate) name: Ident,
    pub(crate) ty: Type,
    /// True if the type borrows, so that the struct has a lifetime.
    pub(crate) borrows: bool,
}

impl Field {
    /// Makes the field of a placeholder that is written at `span`.
    pub(crate) fn of(
        placeholder: &Placeholder<'_>,
        span: Span,
    ) -> std::result::Result<Self, String> {
        let Placeholder { head, ty, .. } = *placeholder;
        let name = LitStr::new(head, span)
            .parse()
            .map_err(|_| format!("`{head}` is not a valid field name"))?;
        if ty == "str" {
            return Err(format!("`<{head}: str>` has no size; write `<{head}: &str>`"));
        }
        let mut ty: Type = LitStr::new(ty, span)
            .parse()
            .map_err(|_| format!("`{ty}` in `<{head}: {ty}>` is not a type"))?;
        let mut borrow = Borrow { lifetime: lifetime(span), used: false, named: None };
        borrow.visit_type_mut(&mut ty);
        if let Some(named) = borrow.named {
            return Err(format!(
                "leave `{named}` out of `<{head}: {}>`; a declared name has one lifetime, which is added automatically",
                placeholder.ty
            ));
        }
        Ok(Self { name, ty, borrows: borrow.used })
    }
}

/// Makes the only lifetime of the struct.
pub(crate) fn lifetime(span: Span) -> Lifetime {
    Lifetime::new("'a", Span::mixed_site().located_at(span))
}

/// Visitor that replaces elided lifetimes with the struct's lifetime.
struct Borrow {
    lifetime: Lifetime,
    used: bool,
    /// Lifetime that is neither elided nor `'static`.
    named: Option<Lifetime>,
}

impl VisitMut for Borrow {
    fn visit_type_reference_mut(&mut self, reference: &mut syn::TypeReference) {
        if reference.lifetime.is_none() {
            reference.lifetime = Some(Lifetime::new("'_", Span::call_site()));
        }
        visit_mut::visit_type_reference_mut(self, reference);
    }

    // `Cow<str>` leaves its lifetime out. The text of other types does not show whether they have one.
    fn visit_path_segment_mut(&mut self, segment: &mut syn::PathSegment) {
        if let PathArguments::AngleBracketed(arguments) = &mut segment.arguments
            && segment.ident == "Cow"
            && !matches!(arguments.args.first(), Some(GenericArgument::Lifetime(_)))
        {
            let elided = Lifetime::new("'_", Span::call_site());
            arguments.args.insert(0, GenericArgument::Lifetime(elided));
        }
        visit_mut::visit_path_segment_mut(self, segment);
    }

    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        if lifetime.ident == "_" {
            *lifetime = self.lifetime.clone();
            self.used = true;
        } else if lifetime.ident != "static" {
            self.named = Some(lifetime.clone());
        }
    }

    // Elision in the arguments of a function means something else.
    fn visit_type_fn_ptr_mut(&mut self, _: &mut syn::TypeFnPtr) {}
    fn visit_parenthesized_generic_arguments_mut(
        &mut self,
        _: &mut syn::ParenthesizedGenericArguments,
    ) {
    }
}
