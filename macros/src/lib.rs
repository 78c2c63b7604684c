//! Macros of etcd-locked: the attribute `#[etcd_locked]`, `lock_names!` and `#[derive(LockKey)]`.
//!
//! Use them through that crate: their expansions call into it.

#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a user's mistake is a compile error, never a panic
#![cfg_attr(test, allow(clippy::expect_used, clippy::panic))]

mod args;
mod bind;
mod block;
mod borrowed;
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
/// Calls with the same `id` run one after the other, in whichever process they are made. Calls with different ids do not
/// meet. Several names, `#[etcd_locked("accounts/<from>", "accounts/<to>")]`, are locked all or none. No two such calls
/// can deadlock if their tasks hold nothing else. Where two of the names are equal at run time, that name is locked once.
/// Free functions and methods alike, and whole [`impl` blocks](#impl-blocks); the signature, other attributes and the body stay
/// as they are written.
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
///              | an expression of type Duration          config.timeout
/// ```
///
/// An expression is anything that implements `LockName`, such as a name declared by `lock_names!`. `word =` begins an
/// option. A word alone is an expression; if it is no argument and resembles an option, it is reported as
/// misspelt. `shared`, `detach` and
/// `reentrant` alone are options; for an argument of that name write `(shared)`.
///
/// The module `options` of etcd-locked describes each option, with an example.
///
/// | option | default | meaning |
/// |---|---|---|
/// | `wait = "5s"` | `"10s"`, or `ETCD_LOCKED_WAIT` | how long to queue for the lock; `"none"` is one try, `"forever"` has no end while etcd responds |
/// | `ttl = "20s"` | `"30s"`, or `ETCD_LOCKED_TTL` | lease time, `"2s"` to `"300s"`: how long a crashed holder blocks the others |
/// | `wait_until = expr` | – | an `Instant`, of std or tokio (or an `Option` of one), that bounds the wait: the earlier of the two wins |
/// | `max_hold = "5s"` | – | hold limit: a body that has not ended by then is dropped at its await: `LockError::HoldLimit` |
/// | `min_hold = "5s"` | – | the name stays locked at least this long from when the call has the lock, even if the body ends earlier |
/// | `when = expr` | `true` | take the lock only if this `bool` over the arguments is true; else the body runs without a lock |
/// | `detach` | off | run the body in a task of its own: dropping the caller does not cancel it |
/// | `reentrant` | off | a lock of this name that the task holds already is used again. Off: `LockError::SelfDeadlock` |
/// | `on_held = "skip"` | `"error"` | when another holder has the lock for all of `wait`, return without running the body |
/// | `on_lost = "continue"` | `"cancel"` | when the lock is lost, let the body run to its end |
/// | `release = "background"` | `"confirmed"` | return as soon as the body has ended, before etcd confirms that the lock is free |
/// | `shared` | off: one holder | share the lock with other readers; excludes `permits` |
/// | `permits = 5` | off: one holder | at most this many holders at a time, over all processes, 1 to 1024. Functions of one binary whose numbers differ are found by `assert_no_overlaps()` |
/// | `proof = order` | – | binds the proof of the lock in the body, an `&Locked<Order>`; `proof = (from, to)` of two names. Not with `when` |
/// | `map_err = f` | `From` | `f: FnOnce(LockError) -> E`, for a function that returns `Result<_, E>` |
/// | `on_error = f` | – | `f: FnOnce(LockError) -> R`, for a function that returns any `R`; excludes `map_err` |
/// | `locks = expr` | the global ones | the `&Locks` to use |
/// | `crate = path` | `::etcd_locked` | absolute path to the runtime where it is renamed or re-exported |
///
/// `wait`, `ttl`, `max_hold`, `min_hold` and `permits` may be expressions over the arguments, such as `permits = config.limit`. A literal
/// is checked while compiling, the value of an expression when the function is called: `LockError::Config`. A computed `wait` of
/// zero is a single try, a computed `max_hold` of zero `HoldLimit` at the first poll. An expression may await. A `?` in it ends the
/// function without the lock. What it borrows is free again before the lock is requested.
///
/// # `impl` blocks
///
/// ```text
/// #[etcd_locked("accounts/<self.id>", wait = "5s")]
/// impl Account {
///     pub async fn debit(&self, amount: u64) -> Result<(), AppError> { … }      // under `accounts/<self.id>`
///
///     #[etcd_locked(shared)]
///     pub async fn balance(&self) -> Result<u64, AppError> { … }                // under it too, with other readers
///
///     #[etcd_locked("audits/<self.id>", wait = "1s")]
///     async fn audit(&self) -> Result<(), AppError> { … }                       // under a name of its own
///
///     #[etcd_locked(unlocked)]
///     pub fn id(&self) -> u64 { … }                                             // without a lock, as it says
///
///     pub fn new(id: u64) -> Self { … }                                         // no `self`: left alone
/// }
/// ```
///
/// On an `impl` block, of a type or of a trait, every method with a receiver takes the lock, or says
/// `#[etcd_locked(unlocked)]`. One that says nothing and cannot take the lock, such as one that is not `async`, does not
/// compile: no lock is forgotten. A function without a receiver is left alone, unless it has the attribute itself.
///
/// A method expands as if the attribute stood on it, with the block's names and options:
///
/// * Names above a method replace all names of the block. If every locked method has names of its own, the block needs none.
/// * An option above a method replaces the block's option of that word; `shared` and `permits` replace each other, and so do
///   `map_err` and `on_error`. A flag of the block cannot be taken back by a method.
/// * `unlocked` stands alone. Above the call of a macro it says that no method which the macro writes needs the lock.
/// * With `#[async_trait]`, either attribute may be the upper one. Where `#[etcd_locked]` is, arguments may be patterns.
/// * The attribute above a method is known by its last word, `etcd_locked`, so it cannot be renamed there.
///
/// Callers outside the block are not checked: a method that another `impl` block has of the same type takes no lock.
///
/// # Typing requirements
///
/// * The function is an `async fn` with a body: no `const`, no `extern`, no trait method without one. Above
///   `#[tokio::main]` and `#[tokio::test]`, which remove `async`; above or below `#[tracing::instrument]`; on methods below
///   `#[async_trait]`, where the arguments are plain names. A function that returns `impl Future` or `Pin<Box<dyn Future>>`
///   will do if all of its body is one `async move` block. The attribute stands once on a function: write all names in it.
/// * `<id>` names a binding of the arguments, also one inside a pattern, such as `id` of `Path(id): Path<u64>`;
///   `<self.shard>` a field of the receiver. What it names implements `LockKey`: integers, strings, `bool`, `char`,
///   addresses, references, `Box`, `Rc` and `Arc` of those, and what has `#[derive(LockKey)]`.
/// * The function returns `Result<_, E>` with `E: From<LockError>`. With `map_err` any `Result<_, E>` will do, with
///   `on_error` any type. `on_held = "skip"` needs `()`, `Option<_>` or a `Result` of those: the value that says
///   "skipped" is `()`, `None`, `Ok(())` or `Ok(None)`.
/// * The future keeps the function's result while the lock is released. So it is `Send` only if that result is `Send`:
///   `Box<dyn Error + Send + Sync>`, not `Box<dyn Error>`. The arguments, and all that the body keeps across an await, are
///   `Send` too.
///
/// Mistakes that can be seen while compiling are refused while compiling, all mistakes of one attribute at once.
///
/// # Semantics
///
/// 0. `when` is evaluated. If it is false, the body runs, without a lock, and nothing of the following happens.
/// 1. The values of the placeholders are written into the name, left to right. A name that is an expression is evaluated,
///    with the arguments in scope; what it moves is gone for the body. Then the options that are expressions are evaluated,
///    in this order: `wait`, `ttl`, `max_hold`, `min_hold`, `permits`, `locks`, `wait_until`. All of this happens once per call,
///    before anything else. A value is always exactly one segment, with any characters.
/// 2. The lock is taken. Without it the body never starts.
/// 3. The body runs as long as the lock is held, and not longer than `max_hold`, counted from when the call has the lock.
///    If the lock is lost, the body is dropped at its next await and the call ends in `LockError::Lost`. `return` and `?`
///    end the body only: the lock is released all the same.
/// 4. The body is dropped, then the lock is released; with `min_hold`, once that time is over. An error
///    of the release never replaces the body's result.
/// 5. `map_err` or `on_error` run last, when the body is gone: they may use `Copy` arguments and references.
///
/// A call whose future is dropped while it waits leaves the wait queue, and takes nothing. If the future is dropped later,
/// the body is dropped where it awaits, then the lock is released in the background. That is so with every option but
/// `detach`.
///
/// Arguments that the body does not mention are not moved into it; they drop after the release.
#[proc_macro_attribute]
pub fn etcd_locked(
    args: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    let (args, item) = (TokenStream::from(args), TokenStream::from(item));
    if let Some(block) = block::Block::of(&item) {
        return block.expand(args).into();
    }
    let expansion = locked(args, &item).unwrap_or_else(|error| {
        // The function stays, so that the mistake costs one error and no "cannot find function". The `allow` keeps rustc
        // from warning about arguments that only the lock name mentions.
        let error = error.into_compile_error();
        quote::quote!(#[allow(unused_variables)] #item #error)
    });
    expansion.into()
}

fn locked(args: TokenStream, item: &TokenStream) -> syn::Result<TokenStream> {
    let mut mistakes = Vec::new();
    let args = args::Args::parse(args, &mut mistakes);
    if let Some(refusal) = block::misplaced_unlocked(&args) {
        return Err(refusal);
    }
    let function =
        function::Function::parse(item.clone()).map_err(|mistake| mistakes.push(mistake)).ok();
    let second = function.iter().flat_map(|function| &function.attrs);
    if let Some(second) = second.into_iter().find(|it| function::is_ours(it)) {
        return Err(function::twice(second));
    }
    let bound = bind::bind(args, function, mistakes)?;
    Ok(expand::expand(&bound))
}

/// Declares lock names: `lock_names!` of etcd-locked hands its input to this macro, after the path of that crate.
#[doc(hidden)]
#[proc_macro]
pub fn lock_names(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    names::declare(input.into()).into()
}

/// Implements `LockKey`, so that values of a type may stand in a lock name.
///
/// ```text
/// #[derive(LockKey)]
/// struct OrderId(u64);             // writes what the field writes
///
/// #[derive(LockKey)]
/// enum Region { North, South }     // writes `North`, `South`
/// ```
///
/// For a struct with one field, tuple or not, generic or not, and for an enum without fields. An enum writes the variant's
/// identifier as it is declared: renaming a variant changes the locks that are taken. Every other type is refused;
/// implement the trait by hand for it.
///
/// Where the runtime is renamed or re-exported, `#[lock_key(crate = path)]` says where it is.
#[proc_macro_derive(LockKey, attributes(lock_key))]
pub fn lock_key(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    key::derive(input.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
