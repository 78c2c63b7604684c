//! Borrowed arguments, which `detach` refuses: a body in a separate task may outlive what they point to.

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
        "`detach` runs the body in a separate task, which may outlive what this borrows; take {}",
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
    use super::*;

    #[test]
    fn detach_refuses_borrowed_arguments_only() {
        for (arguments, take) in [
            ("&self", "`self: Arc<Self>`"),
            ("&mut self, id: u64", "`self: Arc<Self>`"),
            ("self: Pin<&mut Self>", "`self: Arc<Self>`"),
            ("&self, db: &Db", "`self: Arc<Self>`, and `db` by value, or in an `Arc`"),
            (
                "a: &A, b: B<'_>, Path(c): Path<&'a str>",
                "`a`, `b` and `Path (c)` by value, or in an `Arc`",
            ),
            ("mut a: Vec<&str>", "`a` by value, or in an `Arc`"),
            ("", ""),
            ("self", ""),
            ("self: Arc<Self>, State(db): State<Db>", ""),
            ("name: &'static str, of: Cow<'static, str>", ""),
            ("g: impl Fn(&str) -> bool + Send + 'static, h: fn(&str), k: Box<dyn Fn(&u8)>", ""),
        ] {
            let sig = syn::parse_str(&format!("async fn f({arguments})")).expect("a signature");
            let refusal = refusal(&sig).map(|error| error.to_string()).unwrap_or_default();
            let message = refusal.split_once("; take ").map_or("", |(_, message)| message);
            assert_eq!(message, take, "{arguments}");
        }
    }
}
