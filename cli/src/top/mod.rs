//! Command `top`: live table of the names that are locked. It has a model, code that draws it, and the terminal around both.

mod departures;
mod draw;
mod model;
mod screen;
#[cfg(test)]
mod tests;

pub(crate) use self::screen::top;
