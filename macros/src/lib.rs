//! The attribute of etcd-locked. Use it through that crate: what it expands to calls into it.

#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a user's mistake is a compile error, never a panic
#![cfg_attr(test, allow(clippy::expect_used, clippy::panic))]

mod args;
mod bind;
mod borrowed;
mod declared;
mod expand;
mod field;
mod function;
mod key;
mod names;
mod options;
mod overlap;
#[cfg(test)]
mod seeded;
mod shape;
mod template;
mod typo;
mod value;

use proc_macro2::TokenStream;

/// Runs an `async fn` under a lock that all processes of one etcd share.
///
/// ```text
/// #[etcd_locked("orders/<id>", wait = "5s")]
/// async fn ship(id: u64) -> Result<Receipt, AppError> { … }
/// ```
///
/// Calls with the same `id` run one after the other, wherever they are made; calls with different ids do not
/// meet. Several names, `#[etcd_locked("accounts/<from>", "accounts/<to>")]`, are locked all or none, and no two
/// such calls whose tasks hold nothing else can deadlock; where two of them turn out equal, the name is locked once. Free functions and methods alike; the signature, other attributes and the body stay as they are written.
///
/// # Grammar
///
/// ```text
/// lock        := name ("," name)* ("," option)* ","?     at most 32 names
/// name        := a lone string literal that holds a template, or an expression: Order { id }, Nightly, format!(..)
/// template    := segment ("/" segment)*                  at most 1 KiB
/// segment     := literal* placeholder? literal*          never empty
/// literal     := [A-Za-z0-9._~:@=+-]
/// placeholder := "<" ident ("." (ident | index))* ">"    <id>, <order.id>, <self.shard>, <pair.0>
/// option      := word "=" value | "shared" | "detach" | "reentrant"
/// duration    := a string literal, integer and unit      "250ms", "5s", "2m", "1h"
/// ```
///
/// An expression is anything that implements `LockName`, such as a name declared by `lock_names!`. `word =` begins an
/// option; a word alone is an expression, unless it is no argument and nearly an option. `shared`, `detach` and `reentrant`
/// alone are options; for an argument of that name write `(shared)`.
///
/// | option | default | meaning |
/// |---|---|---|
/// | `wait = "5s"` | `"10s"`, configurable | how long to queue for the lock; `"none"` is one try, `"forever"` has no end (but where etcd cannot be reached, the call fails after about the connect time-out) |
/// | `ttl = "30s"` | `"15s"`, configurable | lease time, `"2s"` to `"300s"`: how long a crashed holder blocks the others |
/// | `deadline = expr` | – | an `Instant`, of std or tokio (or an `Option` of one), that bounds the wait: the earlier of the two wins; already past, the call is refused with `Timeout` at once |
/// | `at_most = "5s"` | – | hold limit: a body that has not ended by then is dropped at its await, then the lock is released: `LockError::HoldLimit`; the lease is renewed until then |
/// | `at_least = "5s"` | – | the name stays locked at least this long from when the call has the lock, also if the body ends earlier; the call does not wait for that. `shutdown` keeps the promise, and so does etcd without this process; after a crash in the body only the TTL holds. With `permits = 5`: five calls in that time; not with `shared` |
/// | `when = expr` | `true` | take the lock only if this `bool` over the arguments is true; if not, nothing is taken and the body runs all the same |
/// | `detach` | off | run the body in a task of its own on the caller's tokio runtime: dropping the caller does not cut it, and the lock lives as long as it does |
/// | `reentrant` | off | a lock of this name that the task holds already is used again, without asking etcd; off: `LockError::SelfDeadlock` |
/// | `on_held = "skip"` | `"error"` | when somebody else has the lock for all of `wait`, return without running the body; where the type carries no error (`()`, `Option`), other failures skip as well and are reported as a `tracing` error event |
/// | `on_lost = "continue"` | `"cancel"` | the lock is lost: let the body run to its end, which answers as if nothing had been; `current()` tells (`is_held`, `lost`). A `shutdown` whose grace is over ends it all the same |
/// | `release = "background"` | `"confirmed"` | return as soon as the body has ended, a round trip earlier, and not when etcd has confirmed that the lock is free; a call of this process that comes within a millisecond finds it still here; `shutdown` waits for what is left |
/// | `shared` | alone | share the lock with others that share it: readers run together, and each waits for those before it that do not share, as they wait for readers before them; excludes `permits` |
/// | `permits = 5` | alone | at most so many at a time, over all processes, in order of arrival; an integer literal from 1 to 1024, the same wherever the name is used: who comes second with another number gets `LockError::Mismatch` |
/// | `map_err = f` | `From` | `f: FnOnce(LockError) -> E`, for a function that returns `Result<_, E>` |
/// | `on_error = f` | – | `f: FnOnce(LockError) -> R`, for a function that returns any `R`; excludes `map_err` |
/// | `locks = expr` | the global ones | the `&Locks` to use |
/// | `crate = path` | `::etcd_locked` | absolute path to the runtime where it is renamed or re-exported |
///
/// # Typing requirements
///
/// * The function is an `async fn` with a body: no `const`, no `extern`, no trait method without one. Above
///   `#[tokio::main]` and `#[tokio::test]`, which remove `async`; above or below `#[tracing::instrument]`; on methods below
///   `#[async_trait]`, where the arguments are plain names. A function that returns `impl Future` or `Pin<Box<dyn Future>>`
///   will do if all of its body is one `async move` block.
/// * `<id>` names a binding of the arguments, also one inside a pattern, such as `id` of `Path(id): Path<u64>`;
///   `<self.shard>` a field of the receiver. What it names implements `LockKey`: integers, strings, `bool`, `char`,
///   addresses, references, `Box`, `Rc` and `Arc` of those, and what has `#[derive(LockKey)]`.
/// * The function returns `Result<_, E>` with `E: From<LockError>`. With `map_err` any `Result<_, E>` will do, with
///   `on_error` any type. `on_held = "skip"` needs `()`, `Option<_>` or a `Result` of those: the value that says
///   "skipped" is `()`, `None`, `Ok(())` or `Ok(None)`.
/// * What the function returns is kept while the lock is released, so the future is `Send` only if that is `Send` too
///   (`Box<dyn Error + Send + Sync>`, not `Box<dyn Error>`), beside the arguments and whatever the body keeps across an await.
///
/// Whatever can be known while compiling is refused while compiling, all mistakes of one attribute at once.
///
/// # Semantics
///
/// 0. `when` is evaluated. If it is false, the body runs, without a lock, and nothing of the following happens.
/// 1. The values of the placeholders are written into the name, left to right (a name that is an expression is evaluated,
///    with the arguments in scope; what it moves is gone for the body), then `locks`, then `deadline` is evaluated, once per call
///    and before anything else happens; a value is always exactly one segment, whatever characters it has.
/// 2. The lock is taken. Without it the body never starts.
/// 3. The body runs, as long as the lock is held and not longer than `at_most`, counted from when the call has the lock; if the
///    lock is lost, the body is dropped at its next await and the call ends in `LockError::Lost`. `return` and `?` end the body only: the lock is released all the same.
/// 4. The body is dropped, then the lock is released, or with `at_least` left to etcd to keep. What the body returned is never replaced by an error of the release.
/// 5. `map_err` or `on_error` run last, when the body is gone: they may use `Copy` arguments and references.
///
/// A call whose future is dropped while it waits leaves its queue, and takes nothing; dropped later, its body is dropped where
/// it awaits, then the lock goes back in the background. That is so with every option of the table but where it says otherwise.
///
/// With `detach` the wait is the caller's still; once it has the lock, the body goes to a task, and comes to its end whatever
/// becomes of the caller, under the guard as always (loss, `at_most`, `shutdown`, which waits for it). The `tracing` span, the
/// engine of a scope and the locks of the caller go along; a panic is resumed in the caller. Where the caller runs on no
/// tokio runtime the call is refused with `LockError::Config`. The body is `Send` and `'static`: its arguments are owned, `self`
/// is `Arc<Self>`.
///
/// With `reentrant` the body runs under the lock of the body around, whose tokens it has, and at its end nothing is released;
/// if that one loses the lock, this one does; nor is it `detach`ed then, for it stands and falls with that body. "The task holds" is what `current()` sees: nested and joined, not spawned. Of several
/// names all must be held, or none; else the call is refused with `LockError::SelfDeadlock`.
///
/// Arguments that the body never mentions are not moved into it; they drop after the release.
#[proc_macro_attribute]
pub fn etcd_locked(
    args: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    let item = TokenStream::from(item);
    let expansion = locked(args.into(), &item).unwrap_or_else(|error| {
        // The function stays, so that the mistake costs one error and no "cannot find function". Nor a warning about
        // arguments that only the lock name mentions.
        let error = error.into_compile_error();
        quote::quote!(#[allow(unused_variables)] #item #error)
    });
    expansion.into()
}

fn locked(args: TokenStream, item: &TokenStream) -> syn::Result<TokenStream> {
    let mut mistakes = Vec::new();
    let args = args::Args::parse(args, &mut mistakes);
    let function = function::Function::parse(item.clone())
        .map_err(|mistake| mistakes.push(mistake))
        .ok();
    let bound = bind::bind(args, function, mistakes)?;
    Ok(expand::expand(&bound))
}

/// What `lock_names!` of etcd-locked hands its input to, after the path of that crate.
#[doc(hidden)]
#[proc_macro]
pub fn lock_names(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    names::declare(input.into()).into()
}

/// Makes a type of one's own a value that may stand in a lock name.
///
/// ```text
/// #[derive(LockKey)]
/// struct OrderId(u64);             // writes what the field writes
///
/// #[derive(LockKey)]
/// enum Region { North, South }     // writes `North`, `South`
/// ```
///
/// For a struct with one field, tuple or not, generic or not, and for an enum without fields, which writes the variant's
/// identifier as it is declared: renaming a variant changes the locks that are taken. Everything else is refused; there
/// one implements the trait by hand.
///
/// Where the runtime is renamed or re-exported, `#[lock_key(crate = path)]` says where it is.
#[proc_macro_derive(LockKey, attributes(lock_key))]
pub fn lock_key(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    key::derive(input.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
