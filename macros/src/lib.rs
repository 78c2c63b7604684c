//! Macros of etcd-locked: the attribute `#[etcd_locked]`, `lock_names!` and `#[derive(LockKey)]`.
//!
//! Use them through the crate `etcd-locked`: their expansions call into it.

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
/// Calls with the same `id` run one after another, across all processes. Calls with different ids do not block each other.
/// A call with several names, `#[etcd_locked("accounts/<from>", "accounts/<to>")]`, locks all of them or none. Two such calls
/// cannot deadlock if their tasks hold no other locks. If two of the names are equal at run time, that name is locked once.
/// The attribute works on free functions, methods and whole [`impl` blocks](#impl-blocks). It leaves the signature, other
/// attributes and the body as they are written.
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
/// An expression is any value that implements `LockName`, such as a name declared by `lock_names!`. `word =` begins an
/// option. A single word is an expression. If it is not an argument and resembles an option, it is reported as misspelt.
/// The words `shared`, `detach` and `reentrant` are options; for an argument of that name write `(shared)`.
///
/// The module `options` of etcd-locked describes each option, with an example.
///
/// | option | default | meaning |
/// |---|---|---|
/// | `wait = "5s"` | `"10s"`, or `ETCD_LOCKED_WAIT` | how long to queue for the lock; `"none"` tries once, `"forever"` waits for as long as etcd responds |
/// | `ttl = "20s"` | `"30s"`, or `ETCD_LOCKED_TTL` | lease time, `"2s"` to `"300s"`: how long a crashed holder blocks the others |
/// | `wait_until = expr` | – | an `Instant` of std or tokio (or an `Option` of one) at which the wait ends; the earlier of `wait` and `wait_until` applies |
/// | `max_hold = "5s"` | – | hold limit: a body that has not ended by then is dropped at its await, and the call returns `LockError::HoldLimit` |
/// | `min_hold = "5s"` | – | the name stays locked for at least this long after the call has acquired it, even if the body ends earlier |
/// | `when = expr` | `true` | take the lock only if this `bool` over the arguments is true; else the body runs without a lock |
/// | `detach` | off | run the body in a separate task: dropping the caller does not cancel it |
/// | `reentrant` | off | a call whose task already holds this lock runs under it; without this option such a call returns `LockError::SelfDeadlock` |
/// | `on_held = "skip"` | `"error"` | when another holder keeps the lock for the whole of `wait`, return without running the body |
/// | `on_lost = "continue"` | `"cancel"` | when the lock is lost, let the body run to its end |
/// | `release = "background"` | `"confirmed"` | return as soon as the body has ended, before etcd confirms that the lock is free |
/// | `shared` | off: one holder | share the lock with other readers; excludes `permits` |
/// | `permits = 5` | off: one holder | at most this many holders at a time across all processes, 1 to 1024. `assert_no_overlaps()` finds functions of one binary whose numbers differ |
/// | `proof = order` | – | binds the proof of the lock in the body, an `&Locked<Order>`; with two names write `proof = (from, to)`. Not with `when` |
/// | `map_err = f` | `From` | `f: FnOnce(LockError) -> E`, for a function that returns `Result<_, E>` |
/// | `on_error = f` | – | `f: FnOnce(LockError) -> R`, for a function that returns any `R`; excludes `map_err` |
/// | `locks = expr` | the global ones | the `&Locks` to use |
/// | `crate = path` | `::etcd_locked` | absolute path to the runtime, if it is renamed or re-exported |
///
/// `wait`, `ttl`, `max_hold`, `min_hold` and `permits` may be expressions over the arguments, such as `permits = config.limit`. A literal
/// is checked at compile time. The value of an expression is checked when the function is called; a bad one gives `LockError::Config`.
/// A computed `wait` of zero is a single try. A computed `max_hold` of zero gives `HoldLimit` at the first poll. An expression may
/// await, and a `?` in it ends the function without the lock. Its borrows end before the lock is requested.
///
/// # `impl` blocks
///
/// ```text
/// #[etcd_locked("accounts/<self.id>", wait = "5s")]
/// impl Account {
///     pub async fn debit(&self, amount: u64) -> Result<(), AppError> { … }      // under `accounts/<self.id>`
///
///     #[etcd_locked(shared)]
///     pub async fn balance(&self) -> Result<u64, AppError> { … }                // under the same name, with other readers
///
///     #[etcd_locked("audits/<self.id>", wait = "1s")]
///     async fn audit(&self) -> Result<(), AppError> { … }                       // under its own name
///
///     #[etcd_locked(unlocked)]
///     pub fn id(&self) -> u64 { … }                                             // without a lock, explicitly
///
///     pub fn new(id: u64) -> Self { … }                                         // no `self`: unchanged
/// }
/// ```
///
/// On an `impl` block, of a type or of a trait, every method with a receiver takes the lock, unless it has
/// `#[etcd_locked(unlocked)]`. A method without that attribute that cannot take the lock, for example because it is not `async`,
/// does not compile, so no lock is forgotten. A function without a receiver is unchanged, unless it has the attribute itself.
///
/// A method expands as if it had the attribute itself, with the block's names and options:
///
/// * Names above a method replace all names of the block. If every locked method has its own names, the block needs none.
/// * An option above a method replaces the block's option of the same word; `shared` and `permits` replace each other, and so do
///   `map_err` and `on_error`. A method cannot turn off a flag of the block.
/// * `unlocked` cannot be combined with anything. Above a macro call it declares that no method the macro writes needs the lock.
/// * With `#[async_trait]`, either attribute may be the upper one. If `#[etcd_locked]` is, arguments may be patterns.
/// * The attribute above a method is recognised by its last word, `etcd_locked`, so it cannot be renamed there.
///
/// Other `impl` blocks of the same type are not checked: their methods do not take the lock.
///
/// # Typing requirements
///
/// * The function is an `async fn` with a body, and neither `const` nor `extern`. The attribute goes above `#[tokio::main]` and
///   `#[tokio::test]`, which remove `async`; above or below `#[tracing::instrument]`; and on methods below `#[async_trait]`, where
///   the arguments are plain names. A function that returns `impl Future` or `Pin<Box<dyn Future>>` is accepted if its whole
///   body is one `async move` block. A function has the attribute once: write all names in it.
/// * `<id>` names a binding of the arguments, also one inside a pattern, such as `id` of `Path(id): Path<u64>`;
///   `<self.shard>` names a field of the receiver. Its type implements `LockKey`: integers, strings, `bool`, `char`,
///   addresses, references, `Box`, `Rc` and `Arc` of those, and types with `#[derive(LockKey)]`.
/// * The function returns `Result<_, E>` with `E: From<LockError>`. With `map_err` it may return any `Result<_, E>`, with
///   `on_error` any type. `on_held = "skip"` needs `()`, `Option<_>` or a `Result` of those: a skipped call returns `()`,
///   `None`, `Ok(())` or `Ok(None)`.
/// * The future keeps the function's result while the lock is released. So it is `Send` only if that result is `Send`:
///   `Box<dyn Error + Send + Sync>`, not `Box<dyn Error>`. The arguments, and everything the body keeps across an await,
///   must be `Send` too.
///
/// Mistakes that can be detected at compile time do not compile. All mistakes of one attribute are reported at once.
///
/// # Semantics
///
/// 0. `when` is evaluated. If it is false, the body runs without a lock, and the following steps are skipped.
/// 1. The values of the placeholders are written into the name, left to right. A name that is an expression is evaluated
///    with the arguments in scope; the body cannot use what it moves. Then the options that are expressions are evaluated,
///    in this order: `wait`, `ttl`, `max_hold`, `min_hold`, `permits`, `locks`, `wait_until`. All of this happens once per call,
///    before anything else. A value is always exactly one segment, and may contain any characters.
/// 2. The lock is acquired. Without it the body never starts.
/// 3. The body runs while the lock is held, and at most for `max_hold`, counted from the moment the lock is acquired.
///    If the lock is lost, the body is dropped at its next await and the call returns `LockError::Lost`. `return` and `?`
///    end only the body: the lock is still released.
/// 4. The body is dropped, then the lock is released; with `min_hold`, once that time is over. An error
///    of the release never replaces the body's result.
/// 5. `map_err` or `on_error` runs last, after the body is dropped: it may use `Copy` arguments and references.
///
/// A call whose future is dropped while it waits leaves the wait queue and does not acquire the lock. If the future is dropped
/// later, the body is dropped at its current await, then the lock is released in the background. This holds for every option
/// but `detach`.
///
/// Arguments that the body does not mention are not moved into it; they are dropped after the release.
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
        // The function is kept, so that one mistake is one error, without "cannot find function". The `allow` keeps rustc
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

/// Declares lock names: `lock_names!` of etcd-locked passes the path of that crate and its own input to this macro.
#[doc(hidden)]
#[proc_macro]
pub fn lock_names(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    names::declare(input.into()).into()
}

/// Implements `LockKey`, so that values of a type can be used in a lock name.
///
/// ```text
/// #[derive(LockKey)]
/// struct OrderId(u64);             // writes what the field writes
///
/// #[derive(LockKey)]
/// enum Region { North, South }     // writes `North`, `South`
/// ```
///
/// It works for a struct with one field, tuple or not, generic or not, and for an enum without fields. An enum writes the
/// variant's identifier as it is declared: renaming a variant changes which locks are taken. Every other type is refused;
/// implement the trait by hand for it.
///
/// If the runtime is renamed or re-exported, name its path: `#[lock_key(crate = path)]`.
#[proc_macro_derive(LockKey, attributes(lock_key))]
pub fn lock_key(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    key::derive(input.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
