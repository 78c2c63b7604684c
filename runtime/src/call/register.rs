//! Registration of a lock site with its binary: none, unless the feature `templates` is on.
//!
//! A `macro_rules!` because the feature is ours: a `#[cfg]` in the expansion would ask for a feature of the user's crate.

#[cfg(feature = "templates")]
#[doc(hidden)]
pub use linkme as __linkme;

/// `__register_template!("orders/<id>", concat!(module_path!(), "::ship"), "wait = \"5s\"");`, a statement or an item. Behind
/// the options the number of `permits`, if it is a literal. A declared name has no options.
///
/// The `const` gives the static a scope of its own; inside a generic function it is still one static, there whether or
/// not the function is ever instantiated.
#[cfg(feature = "templates")]
#[doc(hidden)]
#[macro_export]
macro_rules! __register_template {
    ($template:literal, $function:expr $(, $options:literal $(, $permits:literal)?)?) => {
        const _: () = {
            #[$crate::__linkme::distributed_slice($crate::__TEMPLATES)]
            #[linkme(crate = $crate::__linkme)]
            static __TEMPLATE: $crate::Template = $crate::Template::__new(
                $template,
                $function,
                ::core::file!(),
                ::core::line!(),
            )$(.__written($options)$(.__of($permits))?)?;
        };
    };
}

/// Nothing: without the feature `templates` a site costs nothing.
#[cfg(not(feature = "templates"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __register_template {
    ($template:literal, $function:expr $(, $options:literal $(, $permits:literal)?)?) => {};
}
