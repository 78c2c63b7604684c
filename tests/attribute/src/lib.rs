//! Attribute `#[limit::test]` of async tests, which gives each test a time limit.

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

/// Makes a test of an `async fn`: `run` of the development kit runs its body on a separate runtime, within the time limit of a test.
#[proc_macro_attribute]
pub fn test(_: TokenStream, function: TokenStream) -> TokenStream {
    let is_async = |token: &TokenTree| token.to_string() == "async";
    let mut tokens: Vec<_> = function.into_iter().collect();
    let at = tokens.iter().position(is_async);
    tokens.remove(at.expect("an `async fn`"));
    let body = tokens.pop().expect("a body");
    let mut future = parsed("async");
    future.extend([body]);
    let mut call = parsed("::etcd_locked_devkit::limit::run");
    call.extend([TokenTree::from(Group::new(Delimiter::Parenthesis, future))]);
    let mut test = parsed("#[::core::prelude::v1::test]");
    test.extend(tokens);
    test.extend([TokenTree::from(Group::new(Delimiter::Brace, call))]);
    test
}

fn parsed(tokens: &str) -> TokenStream {
    tokens.parse().expect("tokens")
}
