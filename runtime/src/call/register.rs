//! Registration of a lock site with its binary, if the feature `templates` is on.
//!
//! A `macro_rules!`, because a `#[cfg]` in the expansion would check for a feature of the user's crate.

#[cfg(feature = "templates")]
#[doc(hidden)]
pub use linkme as __linkme;

/// `__register_template!("orders/<id>", concat!(module_path!(), "::ship"), "wait = \"5s\"");`, a statement or an item. After the options
/// comes the number of `permits`, if it is a literal. Declared names come without options.
///
/// The `const` gives the static its own scope. Inside a generic function, there is still one static, even if the function is never
/// instantiated.
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

/// Without the feature `templates`, a site costs nothing.
#[cfg(not(feature = "templates"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __register_template {
    ($template:literal, $function:expr $(, $options:literal $(, $permits:literal)?)?) => {};
}
