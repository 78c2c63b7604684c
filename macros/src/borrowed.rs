//! Borrowed arguments, which `detach` refuses: a body in a task of its own may outlive what they point to.

use quote::ToTokens as _;
use syn::visit::{self, Visit};
use syn::{
    Error, FnArg, Lifetime, ParenthesizedGenericArguments, ReceiverKind, Signature, TypeFnPtr,
    TypeReference,
};

/// Refuses `detach` on this function if one of its arguments is borrowed.
pub(crate) fn refusal(sig: &Signature) -> Option<Error> {
    let borrowed: Vec<&FnArg> = sig.inputs.iter().filter(|it| is_borrowed(it)).collect();
    let first = borrowed.first()?;
    let receiver = matches!(first, FnArg::Receiver(_));
    let others: Vec<String> = borrowed
        .iter()
        .filter_map(|input| match input {
            FnArg::Receiver(_) => None,
            FnArg::Typed(argument) => Some(format!("`{}`", shown(&argument.pat))),
        })
        .collect();
    let mut write = Vec::new();
    if receiver {
        write.push("`self: Arc<Self>`".to_owned());
    }
    if !others.is_empty() {
        write.push(format!("{} by value, or in an `Arc`", listed(&others)));
    }
    let message = format!(
        "`detach` runs the body in a task of its own, which may outlive what this borrows; take {}",
        write.join(", and ")
    );
    Some(Error::new_spanned(first, message))
}

fn listed(words: &[String]) -> String {
    match words {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        words => words.join(""),
    }
}

/// Shows a pattern as in the source, without `mut` and `ref`.
fn shown(pattern: &syn::Pat) -> String {
    match pattern {
        syn::Pat::Ident(name) => name.ident.to_string(),
        other => other.to_token_stream().to_string(),
    }
}

fn is_borrowed(argument: &FnArg) -> bool {
    let mut borrows = Borrows(false);
    borrows.visit_fn_arg(argument);
    borrows.0
}

/// True after a lifetime that is elided or not `'static`. Lifetimes inside a function type do not count: they are bound by
/// its callers.
struct Borrows(bool);

impl<'a> Visit<'a> for Borrows {
    fn visit_type_reference(&mut self, reference: &'a TypeReference) {
        if reference.lifetime.is_none() {
            self.0 = true;
        }
        visit::visit_type_reference(self, reference);
    }

    fn visit_receiver_kind(&mut self, kind: &'a ReceiverKind) {
        if let ReceiverKind::Reference(..) = kind {
            self.0 = true;
        }
        visit::visit_receiver_kind(self, kind);
    }

    fn visit_lifetime(&mut self, lifetime: &'a Lifetime) {
        if lifetime.ident != "static" {
            self.0 = true;
        }
    }

    fn visit_type_fn_ptr(&mut self, _: &'a TypeFnPtr) {}

    fn visit_parenthesized_generic_arguments(&mut self, _: &'a ParenthesizedGenericArguments) {}
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::*;

    fn refused(sig: proc_macro2::TokenStream) -> Option<String> {
        let sig: Signature = syn::parse2(sig).expect("a signature");
        refusal(&sig).map(|error| error.to_string())
    }

    #[test]
    fn names_borrowed_arguments_and_the_remedy() {
        let why =
            "`detach` runs the body in a task of its own, which may outlive what this borrows";
        for (sig, what) in [
            (quote!(async fn f(&self)), "take `self: Arc<Self>`"),
            (quote!(async fn f(&mut self, id: u64)), "take `self: Arc<Self>`"),
            (quote!(async fn f(self: Pin<&mut Self>)), "take `self: Arc<Self>`"),
            (
                quote!(async fn f(&self, db: &Db)),
                "take `self: Arc<Self>`, and `db` by value, or in an `Arc`",
            ),
            (
                quote!(async fn f(id: u64, a: &A, b: B<'_>, Path(c): Path<&'a str>)),
                "take `a`, `b` and `Path (c)` by value, or in an `Arc`",
            ),
            (quote!(async fn f(mut a: Vec<&str>)), "take `a` by value, or in an `Arc`"),
        ] {
            assert_eq!(refused(sig), Some(format!("{why}; {what}")));
        }
    }

    #[test]
    fn accepts_owned_arguments() {
        for sig in [
            quote!(async fn f()),
            quote!(async fn f(self)),
            quote!(async fn f(self: Arc<Self>, id: u64)),
            quote!(async fn f(name: &'static str, names: Vec<&'static str>, of: Cow<'static, str>)),
            quote!(async fn f(g: impl Fn(&str) -> bool + Send + 'static, h: fn(&str), k: Box<dyn Fn(&u8)>)),
            quote!(async fn f<T: Send>(State(db): State<Db>, t: T)),
        ] {
            assert_eq!(refused(sig), None);
        }
    }
}
