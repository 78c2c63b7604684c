//! Group of lock names as a type: one name or a tuple of names.

use std::fmt;
use std::sync::Arc;

use super::{LockMode, Locked, Proof};
use crate::engine::OwnedLocks;
use crate::values::LockName;

/// The names of one call, as `N` of [`Acquire<N>`](crate::Acquire) and [`LockGuard<N>`](crate::LockGuard): a [`LockName`], or a tuple of
/// two to eight ([`and`](crate::Acquire::and)). Other crates cannot implement it.
pub trait Group: sealed::Sealed + 'static {
    /// The proofs that [`LockGuard::locked`](crate::LockGuard::locked) returns: `&Locked<N, M>`, or a tuple of those.
    type Locked<'a, M: LockMode>;
    #[doc(hidden)]
    type Proofs;
    #[doc(hidden)]
    type Held<M: LockMode>: fmt::Debug;
    #[doc(hidden)]
    fn held<M: LockMode>(proofs: Self::Proofs, of: Granted<'_>) -> Self::Held<M>;
    #[doc(hidden)]
    fn locked<M: LockMode>(held: &Self::Held<M>) -> Self::Locked<'_, M>;
}

/// A group to which one more name can be added, giving `With`.
#[diagnostic::on_unimplemented(
    message = "the type of a guard has at most eight names",
    note = "add the others with `and_all([..])`: they are locked too, and `token_of(&name)` returns their tokens"
)]
pub trait Append<B: LockName>: Group {
    #[doc(hidden)]
    type With: Group;
    #[doc(hidden)]
    fn append(proofs: Self::Proofs, proof: Proof<B>) -> <Self::With as Group>::Proofs;
}

/// Locks that were granted to a call.
#[derive(Debug, Clone, Copy)]
pub struct Granted<'a>(pub(crate) &'a Arc<OwnedLocks>);

mod sealed {
    pub trait Sealed {}
}

impl<N: LockName + 'static> sealed::Sealed for N {}

impl<N: LockName + 'static> Group for N {
    type Locked<'a, M: LockMode> = &'a Locked<N, M>;
    type Proofs = Proof<N>;
    type Held<M: LockMode> = Locked<N, M>;

    fn held<M: LockMode>(proof: Proof<N>, of: Granted<'_>) -> Locked<N, M> {
        proof.among(of.0)
    }

    fn locked<M: LockMode>(held: &Locked<N, M>) -> &Locked<N, M> {
        held
    }
}

impl<A: LockName + 'static, B: LockName + 'static> Append<B> for A {
    type With = (A, B);

    fn append(first: Proof<A>, proof: Proof<B>) -> (Proof<A>, Proof<B>) {
        (first, proof)
    }
}

macro_rules! group {
    ($($name:ident $at:tt)+) => {
        impl<$($name: LockName + 'static),+> sealed::Sealed for ($($name,)+) {}

        impl<$($name: LockName + 'static),+> Group for ($($name,)+) {
            type Locked<'a, M: LockMode> = ($(&'a Locked<$name, M>,)+);
            type Proofs = ($(Proof<$name>,)+);
            type Held<M: LockMode> = ($(Locked<$name, M>,)+);

            fn held<M: LockMode>(proofs: Self::Proofs, of: Granted<'_>) -> Self::Held<M> {
                ($(proofs.$at.among(of.0),)+)
            }

            fn locked<M: LockMode>(held: &Self::Held<M>) -> Self::Locked<'_, M> {
                ($(&held.$at,)+)
            }
        }
    };
}

/// Implements a group to which one more name can be added.
macro_rules! append {
    ($($name:ident $at:tt)+) => {
        group!($($name $at)+);

        impl<$($name: LockName + 'static,)+ Z: LockName + 'static> Append<Z> for ($($name,)+) {
            type With = ($($name,)+ Z);

            fn append(all: Self::Proofs, proof: Proof<Z>) -> ($(Proof<$name>,)+ Proof<Z>) {
                ($(all.$at,)+ proof)
            }
        }
    };
}

append!(A 0 B 1);
append!(A 0 B 1 C 2);
append!(A 0 B 1 C 2 D 3);
append!(A 0 B 1 C 2 D 3 E 4);
append!(A 0 B 1 C 2 D 3 E 4 F 5);
append!(A 0 B 1 C 2 D 3 E 4 F 5 G 6);
group!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7);
