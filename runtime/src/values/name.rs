//! Lock names: which characters they may contain, and how values are escaped so that no two names are confused (invariant I9).

use std::borrow::Cow;
use std::fmt::{self, Debug, Display, Write};
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZero;
use std::rc::Rc;
use std::sync::Arc;

use super::{LockError, getters};

const LONGEST: usize = 1024;

/// A value that can fill a placeholder of a lock name.
///
/// Implemented for integers, `NonZero` integers, `bool`, `char`, strings, IP addresses, `Uuid` (feature `uuid`), and references, `Box`,
/// `Rc`, `Arc` and `Cow` of those. Use `#[derive(LockKey)]` for a struct around one of them and for an enum without fields. Floats are
/// not supported, because different ones may print the same, and neither are collections and `Option` (what would `None` lock?).
///
/// An implementation by hand writes the value's text, which the [`Segment`] escapes. Values that should lock different things must write
/// different texts, and every value must write some text.
///
/// ```
/// use std::fmt::{self, Write};
/// use etcd_locked::{LockKey, Segment};
///
/// struct Sku(String);
///
/// impl LockKey for Sku {
///     fn write(&self, out: &mut Segment<'_>) -> fmt::Result {
///         out.write_str(&self.0)
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot stand in a lock name",
    label = "not a `LockKey`",
    note = "integers, `bool`, `char`, strings and IP addresses can, and types with `#[derive(LockKey)]`: newtypes of those, and enums without fields",
    note = "of a struct, name a field that can, such as `<order.id>`; of an `Option` or a collection, lock what is in it",
    note = "of a float, lock an integer, such as cents: floats that differ may print alike"
)]
pub trait LockKey {
    /// Writes the value's text.
    ///
    /// # Errors
    /// Return the error of writing to `out`. Any error makes the name invalid.
    fn write(&self, out: &mut Segment<'_>) -> fmt::Result;
}

/// One segment of a name under construction. It percent-encodes everything outside `A-Z a-z 0-9 . _ ~ : @ = + -`.
#[derive(Debug)]
pub struct Segment<'a> {
    name: &'a mut String,
    empty: bool,
}

impl Write for Segment<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.empty &= text.is_empty();
        for byte in text.bytes() {
            // A longer name is refused in any case, so the rest of a long value is not rendered.
            if self.name.len() > LONGEST {
                return Ok(());
            }
            if is_literal(byte) {
                self.name.push(char::from(byte));
            } else {
                write!(self.name, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

fn is_literal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._~:@=+-".contains(&byte)
}

/// A rendered lock name, or the reason why it is invalid.
///
/// Names are compared by their texts alone, wherever they come from; invalid names by their reasons.
///
/// `Display` prints the template. For a name without one, it prints `(run-time name)`, or the text if
/// [`Config::show_names`](crate::Config::show_names) is set. A text may be personal data. `Debug` prints it.
#[derive(Clone)]
pub struct Name {
    text: Result<Arc<str>, Cow<'static, str>>,
    template: Option<&'static str>,
    /// True if `Display` prints the text of a name without a template.
    shows: bool,
}

/// Shown for a name without a template.
pub(crate) const RUN_TIME: &str = "(run-time name)";

impl Name {
    getters! { self:
        /// Returns the rendered text, as it appears in etcd between prefix and lease id. `None` if the name is invalid: taking the lock
        /// then fails with [`LockError::InvalidName`](crate::LockError::InvalidName).
        text: Option<&str> = self.text.as_deref().ok();
        /// Returns the template from which it was rendered, if any.
        template: Option<&'static str> = self.template;
    }

    /// Sets the template that stands for the name, unless it has one.
    pub(crate) fn show_as(&mut self, template: &'static str) {
        self.template.get_or_insert(template);
    }

    pub(crate) fn showing(self, shows: bool) -> Self {
        Self { shows, ..self }
    }

    /// Returns the text, or the error if it is invalid.
    pub(crate) fn checked(&self) -> Result<&Arc<str>, LockError> {
        self.text.as_ref().map_err(|reason| match reason == UNFILLED {
            // A mistake in the program, not in a value.
            true => LockError::config(format!("a lock name given as text is invalid: {reason}")),
            false => LockError::InvalidName { name: self.clone(), reason: reason.to_string() },
        })
    }

    fn given(text: &str) -> Self {
        let checked = check(text).map_err(Into::into);
        Self { text: checked.map(|()| text.into()), template: None, shows: false }
    }
}

/// Fills the placeholders of a template with these values. The macro has checked the template.
pub fn render(template: &'static str, values: &[&dyn LockKey]) -> Name {
    let text = fill(template, values).map(Into::into);
    Name { text, template: Some(template), shows: false }
}

/// Returns the name that a user's expression stands for.
pub fn name_of(name: &dyn LockName) -> Name {
    name.lock_name()
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text().filter(|_| self.shows);
        f.write_str(self.template.or(text).unwrap_or(RUN_TIME))
    }
}

impl Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Ok(text) => write!(f, "{text:?}"),
            Err(reason) => write!(f, "<invalid: {reason}>"),
        }
    }
}

fn fill(template: &str, values: &[&dyn LockKey]) -> Result<String, Cow<'static, str>> {
    let mut name = String::with_capacity(template.len() + 16);
    let mut values = values.iter();
    let mut rest = template;
    while let Some((literal, after)) = rest.split_once('<') {
        let (placeholder, after) = after.split_once('>').unwrap_or((after, ""));
        rest = after;
        name.push_str(literal);
        let mut segment = Segment { name: &mut name, empty: true };
        let written = values.next().map(|value| value.write(&mut segment));
        let empty = segment.empty;
        let wrong = match written {
            Some(Ok(())) if !empty => continue,
            Some(Ok(())) => "is empty",
            Some(Err(_)) => "cannot be written",
            None => "is missing",
        };
        return Err(format!("the value of `<{placeholder}>` {wrong}").into());
    }
    name.push_str(rest);
    if name.len() > LONGEST {
        return Err(TOO_LONG.into());
    }
    Ok(name)
}

const UNFILLED: &str = "`<` begins a placeholder, but only a lone string literal in `#[etcd_locked(..)]` is a template: \
     render the text with `format!`, or declare the name with `lock_names!`";
const TOO_LONG: &str = "it is longer than 1024 bytes; lock a digest of the value instead";

fn check(text: &str) -> Result<(), &'static str> {
    if text.is_empty() {
        return Err("it is empty");
    }
    if text.len() > LONGEST {
        return Err(TOO_LONG);
    }
    if text.contains('<') {
        return Err(UNFILLED);
    }
    for segment in text.split('/') {
        if segment.is_empty() {
            return Err(
                "it has an empty segment: a `/` is at its beginning, at its end or doubled",
            );
        }
        let mut bytes = segment.bytes();
        while let Some(byte) = bytes.next() {
            let escaped = |b: Option<u8>| b.is_some_and(|b| matches!(b, b'0'..=b'9' | b'A'..=b'F'));
            if !(is_literal(byte) || byte == b'%' && escaped(bytes.next()) && escaped(bytes.next()))
            {
                return Err(
                    "it may contain only letters, digits, `._~:@=+-`, `/` and upper-case `%XX`",
                );
            }
        }
    }
    Ok(())
}

/// A value that names a lock: anything that can be turned into a [`Name`].
///
/// Implemented for the names of [`lock_names!`](crate::lock_names!), [`Name`], `str` and `String` (checked when the lock is taken), and
/// references to those. By hand:
///
/// ```
/// use etcd_locked::{LockName, Name};
///
/// struct Tenant(String);
///
/// impl LockName for Tenant {
///     type Held = Self; // `lock(tenant)` returns a LockGuard<Tenant>
///     type Kept = Self; // the proof returns the Tenant
///
///     fn lock_name(&self) -> Name {
///         format!("tenants/{}", self.0).lock_name()
///     }
///
///     fn keep(self, _: &Name) -> Self {
///         self
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the name of a lock",
    label = "not a `LockName`",
    note = "names are what `lock_names!` declares, such as `Order {{ id }}`, strings, and `etcd_locked::Name`",
    note = "to lock the value of an argument, write a template, such as `\"orders/<id>\"`"
)]
pub trait LockName {
    /// The type of the name in [`LockGuard`](crate::LockGuard) and [`Locked`](crate::Locked): `Self` with `'static` in place of each
    /// lifetime, or [`Name`] for a text or a reference.
    type Held: LockName<Held = Self::Held, Kept = Self::Kept> + 'static
    where
        Self: Sized;

    /// The type that [`Locked::name`](crate::Locked::name) returns: `Self`, or [`Name`] if the name borrows, which a proof must not.
    type Kept: 'static
    where
        Self: Sized;

    /// Returns the name to lock.
    fn lock_name(&self) -> Name;

    /// Returns what the proof keeps; `name` is the result of [`lock_name`](Self::lock_name).
    fn keep(self, name: &Name) -> Self::Kept
    where
        Self: Sized;
}

#[diagnostic::do_not_recommend] // the message lists the types
impl LockName for Name {
    type Held = Self;
    type Kept = Self;

    fn lock_name(&self) -> Name {
        self.clone()
    }

    fn keep(self, _: &Name) -> Self {
        self
    }
}

#[diagnostic::do_not_recommend]
impl LockName for str {
    fn lock_name(&self) -> Name {
        Name::given(self)
    }
}

#[diagnostic::do_not_recommend]
impl LockName for String {
    type Held = Name;
    type Kept = Name;

    fn lock_name(&self) -> Name {
        Name::given(self)
    }

    fn keep(self, name: &Name) -> Name {
        name.clone()
    }
}

#[diagnostic::do_not_recommend]
impl<T: LockName + ?Sized> LockName for &T {
    type Held = Name;
    type Kept = Name;

    fn lock_name(&self) -> Name {
        (**self).lock_name()
    }

    fn keep(self, name: &Name) -> Name {
        name.clone()
    }
}

macro_rules! printed {
    ($($type:ty)*) => {$(
        #[diagnostic::do_not_recommend] // the message lists the types
        impl LockKey for $type {
            fn write(&self, out: &mut Segment<'_>) -> fmt::Result {
                write!(out, "{self}")
            }
        }
    )*};
}

printed! {
    u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize
    NonZero<u8> NonZero<u16> NonZero<u32> NonZero<u64> NonZero<u128> NonZero<usize>
    NonZero<i8> NonZero<i16> NonZero<i32> NonZero<i64> NonZero<i128> NonZero<isize>
    bool char str String IpAddr Ipv4Addr Ipv6Addr
}

#[cfg(feature = "uuid")]
printed! { uuid::Uuid }

macro_rules! pointed {
    ($($type:ty)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<T: LockKey + ?Sized> LockKey for $type {
            fn write(&self, out: &mut Segment<'_>) -> fmt::Result {
                (**self).write(out)
            }
        }
    )*};
}

pointed! { &T &mut T Box<T> Rc<T> Arc<T> }

#[diagnostic::do_not_recommend]
impl<T: LockKey + ToOwned + ?Sized> LockKey for Cow<'_, T> {
    fn write(&self, out: &mut Segment<'_>) -> fmt::Result {
        (**self).write(out)
    }
}

/// Returns the templates of these names, as in the holder record; `None` if all are run-time names.
pub(crate) fn templates<'a>(names: impl Iterator<Item = &'a Name>) -> Option<Cow<'static, str>> {
    names
        .filter_map(Name::template)
        .map(Cow::Borrowed)
        .reduce(|all, next| format!("{all}, {next}").into())
}
