//! Methods that return or set one thing, as a table with one row each: docs, name, type and value.

/// Getters. Rows have the form `name: Type = value;`.
macro_rules! getters {
    ($self:ident: $($(#[$doc:meta])* $name:ident: $type:ty = $value:expr;)+) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name(&$self) -> $type {
            $value
        }
    )+};
}

/// Setters of a builder. Rows have the form `name(argument: Type) { change of self }`.
macro_rules! setters {
    ($self:ident: $($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) $change:block)+) => {$(
        $(#[$doc])*
        pub fn $name(mut $self, $($argument: $type),*) -> Self {
            $change
            $self
        }
    )+};
}

pub(crate) use {getters, setters};
