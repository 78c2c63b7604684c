//! Mistakes that two places of a program make together, reported once each: opposite lock orders, and different numbers of permits.
//!
//! Taking A under B here and B under A there can deadlock. Different numbers of permits for a name are not an error, because every
//! rolling deployment has them for a while; if they last, one number is wrong. Names are compared by their templates, or by their text if
//! they lack one. Two names of one template are not compared: their order depends on the values.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::mutex::lock;
use crate::values::{LockError, Name};

/// Maximum number of pairs, and of names, to remember. A program has few, unless it generates names.
const REMEMBERED: usize = 1024;

/// Orders in which the locks of one engine have been taken, and what has been reported.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    seen: Mutex<Seen>,
    /// True under test: a call against the order is refused, and not only reported.
    refuses: AtomicBool,
}

#[derive(Debug, Default)]
struct Seen {
    /// The held lock and the one requested under it, the place, and whether the opposite order has been reported.
    pairs: BTreeMap<(Family, Family), (Place, bool)>,
    /// Names reported for different numbers of permits.
    permits: BTreeSet<Family>,
}

/// A template, or the name if there is none.
type Family = Cow<'static, str>;

/// The calling function; `lock()` for a call by hand.
type Place = &'static str;

impl Orders {
    /// Sets whether a call against the order is refused.
    #[cfg(feature = "testing")]
    pub(crate) fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::Relaxed);
    }

    /// Reports, once for each pair, that a task which holds `held` requests `wanted`, and another place took them in the opposite order.
    pub(crate) fn check<'a>(
        &self,
        held: impl Iterator<Item = &'a Name>,
        wanted: &[&Name],
        function: Option<&'static str>,
    ) -> Result<(), LockError> {
        let inversion = lock(&self.seen).note(held, wanted, function.unwrap_or("lock()"));
        let Some((held, wanted, there, first)) = inversion else { return Ok(()) };
        let here = function.unwrap_or("lock()");
        if first {
            tracing::warn!(
                code = "lock.order",
                %held, %wanted, here, there,
                "two places take these locks in opposite order, so their calls can deadlock: take both locks in one call, or \
                 everywhere in one order"
            );
        }
        match self.refuses.load(Ordering::Relaxed) {
            true => Err(LockError::OrderInversion { name: wanted, held, here, there }),
            false => Ok(()),
        }
    }

    /// Reports, once for each template, that a refused call and the holder of its lock use different numbers of permits.
    pub(crate) fn compare_permits(
        &self,
        permits: NonZeroU16,
        function: Option<&'static str>,
        error: &LockError,
    ) {
        let differs = |of: &u16| *of != permits.get();
        if let (Some(name), Some(holder)) = (error.name(), error.holder())
            && let Some(theirs) = holder.permits().filter(differs)
            && let Some(family) = family(name)
        {
            let mut seen = lock(&self.seen);
            let first = seen.permits.len() < REMEMBERED && seen.permits.insert(family);
            drop(seen); // before a subscriber runs
            if first {
                tracing::warn!(
                    code = "lock.permits_differ",
                    lock = %name,
                    here = function.unwrap_or("lock()"),
                    permits,
                    %holder,
                    theirs,
                    "the holder uses another number of permits for this name, as in a rolling deployment. Each call's own number \
                     applies; if the difference lasts, correct one of the two"
                );
            }
        }
    }
}

impl Seen {
    /// Remembers which lock is requested under which. If the opposite order is known, returns the held lock, the requested lock, where
    /// they were taken in the opposite order, and whether that is new.
    fn note<'a>(
        &mut self,
        held: impl Iterator<Item = &'a Name>,
        wanted: &[&Name],
        here: Place,
    ) -> Option<(Box<Name>, Name, Place, bool)> {
        let mut inversion = None;
        for held in held {
            for wanted in wanted {
                let turned = match (family(wanted), family(held)) {
                    (Some(inner), Some(outer)) if inner != outer => (inner, outer),
                    _ => continue,
                };
                if let Some((there, reported)) = self.pairs.get_mut(&turned) {
                    let (there, first) = (*there, !std::mem::replace(reported, true));
                    let held = Box::new(held.clone());
                    inversion.get_or_insert((held, (*wanted).clone(), there, first));
                } else if self.pairs.len() < REMEMBERED {
                    let (inner, outer) = turned;
                    self.pairs.entry((outer, inner)).or_insert((here, false));
                }
            }
        }
        inversion
    }
}

fn family(name: &Name) -> Option<Family> {
    match name.template() {
        Some(template) => Some(Cow::Borrowed(template)),
        None => name.text().map(|text| Cow::Owned(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::{LockName as _, render};

    fn order(id: u64) -> Name {
        render("orders/<id>", &[&id])
    }

    #[test]
    fn names_further_out_and_names_without_template_count() {
        let mut seen = Seen::default();
        let mut note =
            |held: &[&Name], wanted: &Name, at| seen.note(held.iter().copied(), &[wanted], at);
        note(&[&order(1)], &order(2), "here");
        assert_eq!(note(&[&order(2)], &order(1), "there"), None);
        let [a, b, c] = ["a", "b", "c"].map(|name| name.lock_name());
        note(&[&a, &order(1)], &b, "here");
        assert_eq!(note(&[&b], &c, "here"), None);
        let inversion = note(&[&b], &order(3), "there");
        assert_eq!(inversion, Some((Box::new(b.clone()), order(3), "here", true)));
        assert!(note(&[&b], &a, "there").is_some());
    }

    #[test]
    fn made_up_names_do_not_pile_up() {
        let mut seen = Seen::default();
        for n in 0..2 * REMEMBERED {
            seen.note([format!("a/{n}").lock_name()].iter(), &[&order(1)], "here");
        }
        assert_eq!(seen.pairs.len(), REMEMBERED);
    }
}
