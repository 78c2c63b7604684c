//! Lock names: what may stand in one, and how values are escaped so that a name never means another (invariant I9).

use std::borrow::Cow;
use std::fmt::{self, Debug, Display, Write};
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZero;
use std::rc::Rc;
use std::sync::Arc;

use super::{LockError, getters};

const LONGEST: usize = 1024;

/// A value that may stand in a placeholder of a lock name.
///
/// Implemented for integers, `NonZero` integers, `bool`, `char`, strings, IP addresses, `Uuid` (feature `uuid`), and references, `Box`,
/// `Rc`, `Arc` and `Cow` of those; `#[derive(LockKey)]` is for a struct around one of them and for an enum without fields. Not for floats
/// (two that differ may print alike), collections or `Option` (what would `None` lock?).
///
/// An implementation by hand writes the value's text, which the [`Segment`] escapes. Two values that should lock different things must
/// write different texts, and none may write nothing.
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
    /// Passes on what writing to `out` answers; an error of its own makes the name invalid.
    fn write(&self, out: &mut Segment<'_>) -> fmt::Result;
}

/// One segment of a name under construction: percent-encodes whatever is written to it outside `A-Z a-z 0-9 . _ ~ : @ = + -`.
#[derive(Debug)]
pub struct Segment<'a> {
    name: &'a mut String,
    empty: bool,
}

impl Write for Segment<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.empty &= text.is_empty();
        for byte in text.bytes() {
            // A name this long is refused in any case: no use in rendering a megabyte of it.
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

/// A rendered lock name, or why it is none.
///
/// A name is its text: two names are equal as their texts are, whatever they were made from; invalid ones if the reason is the same.
///
/// `Display` prints the template; of a name without one `(run-time name)`, or with [`Config::show_names`](crate::Config::show_names) its
/// text. A text may be personal data. `Debug` prints it.
#[derive(Clone)]
pub struct Name {
    text: Result<Arc<str>, Cow<'static, str>>,
    template: Option<&'static str>,
    /// `Display` prints the text where there is no template.
    shows: bool,
}

/// What stands for a name without a template.
pub(crate) const RUN_TIME: &str = "(run-time name)";

impl Name {
    getters! { self:
        /// The rendered text, as it stands in etcd between prefix and lease id.
        ///
        /// `None` if the name is invalid: then taking the lock fails with [`LockError::InvalidName`](crate::LockError::InvalidName).
        text: Option<&str> = self.text.as_deref().ok();
        /// The template it was rendered from, if any.
        template: Option<&'static str> = self.template;
    }

    /// Gives a name a template to be shown by, unless it has one.
    pub(crate) fn show_as(&mut self, template: &'static str) {
        self.template.get_or_insert(template);
    }

    pub(crate) fn showing(self, shows: bool) -> Self {
        Self { shows, ..self }
    }

    /// Returns the text, or why it cannot be locked.
    pub(crate) fn checked(&self) -> Result<&Arc<str>, LockError> {
        self.text.as_ref().map_err(|reason| match reason == UNFILLED {
            // A mistake of the program, and not of a value.
            true => LockError::config(format!(
                "a lock name that was given as a text is invalid: {reason}"
            )),
            false => LockError::InvalidName { name: self.clone(), reason: reason.to_string() },
        })
    }

    fn given(text: &str) -> Self {
        let checked = check(text).map_err(Into::into);
        Self { text: checked.map(|()| text.into()), template: None, shows: false }
    }
}

/// Fills the placeholders of a template, which the macro has checked, with these values.
pub fn render(template: &'static str, values: &[&dyn LockKey]) -> Name {
    let text = fill(template, values).map(Into::into);
    Name { text, template: Some(template), shows: false }
}

/// The name a user's expression stands for.
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

const UNFILLED: &str = "`<` begins a placeholder, and a template is a lone string literal of `#[etcd_locked(..)]`; \
     write the text with `format!`, or declare the name by `lock_names!`";
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
                "it has an empty segment: no `/` at the beginning, at the end or twice in a row",
            );
        }
        let mut bytes = segment.bytes();
        while let Some(byte) = bytes.next() {
            let escaped = |b: Option<u8>| b.is_some_and(|b| matches!(b, b'0'..=b'9' | b'A'..=b'F'));
            if !(is_literal(byte) || byte == b'%' && escaped(bytes.next()) && escaped(bytes.next()))
            {
                return Err(
                    "only letters, digits, `._~:@=+-`, `/` and upper-case `%XX` may stand in it",
                );
            }
        }
    }
    Ok(())
}

/// What can be locked: anything that gives a [`Name`].
///
/// Implemented for what [`lock_names!`](crate::lock_names!) declares, [`Name`], `str` and `String` (checked when the lock is
/// taken), and references to those. By hand:
///
/// ```
/// use etcd_locked::{LockName, Name};
///
/// struct Tenant(String);
///
/// impl LockName for Tenant {
///     type Held = Self; // lock(tenant) is a LockGuard<Tenant>
///     type Kept = Self; // whose proof gives the Tenant back
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
    /// The type by which a [`LockGuard`](crate::LockGuard) and a [`Locked`](crate::Locked) of this name are known: `Self` with
    /// `'static` in place of each lifetime, or [`Name`] for a name that is a text or a reference.
    type Held: LockName<Held = Self::Held, Kept = Self::Kept> + 'static
    where
        Self: Sized;

    /// What [`Locked::name`](crate::Locked::name) gives: `Self`, or [`Name`] where the name borrows, as the proof must not.
    type Kept: 'static
    where
        Self: Sized;

    /// The name to lock.
    fn lock_name(&self) -> Name;

    /// Keeps what the proof gives; `name` is what [`lock_name`](Self::lock_name) answered.
    fn keep(self, name: &Name) -> Self::Kept
    where
        Self: Sized;
}

#[diagnostic::do_not_recommend] // the message has the list
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
        #[diagnostic::do_not_recommend] // the message has the list
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

/// The templates of these names, as the holder record has them; `None` if all were given at run time.
pub(crate) fn templates<'a>(names: impl Iterator<Item = &'a Name>) -> Option<Cow<'static, str>> {
    names
        .filter_map(Name::template)
        .map(Cow::Borrowed)
        .reduce(|all, next| format!("{all}, {next}").into())
}
