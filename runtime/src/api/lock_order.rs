//! Mistakes that two places of a program make together, reported once each: locks in opposite order, and different numbers of permits.
//!
//! A under B here and B under A there is a deadlock to come. Different numbers of permits of one name are not an error, because every
//! rolling deployment has them for a while; where that lasts, one number is a mistake. Names count by their templates; a name without a template counts
//! for itself. Two names of one template have no order: there the values decide.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::mutex::lock;
use crate::values::error::LockError;
use crate::values::name::Name;

/// Pairs, and names, that are remembered: a program has few, unless it makes up its names as it goes.
const REMEMBERED: usize = 1024;

/// The orders in which one engine's locks have been taken, and what has been reported.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    seen: Mutex<Seen>,
    /// True if a call against the order is refused, as under test, and not only reported.
    refuses: AtomicBool,
}

#[derive(Debug, Default)]
struct Seen {
    /// What was held, what was asked for under it, and where.
    pairs: BTreeMap<(Family, Family), Place>,
    reported: BTreeSet<(Family, Family)>,
    /// The names whose numbers of permits have been reported to differ.
    permits: BTreeSet<Family>,
}

/// A template, or the name where there is none.
type Family = Cow<'static, str>;

/// The function that asked; `lock()`, where it was called by hand.
type Place = &'static str;

/// Two places that take the same locks in opposite order.
#[derive(Debug, PartialEq, Eq)]
struct Inversion {
    held: Name,
    wanted: Name,
    here: Place,
    there: Place,
    first: bool,
}

impl Orders {
    /// From now on a call against the order is refused, or is not.
    #[cfg(feature = "testing")]
    pub(crate) fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::Relaxed);
    }

    /// Checks the call of a task that holds `held` and asks for `wanted`: reports an order that is the other way round elsewhere,
    /// once for each pair.
    pub(crate) fn check(
        &self,
        held: &[Name],
        wanted: &[&Name],
        function: Option<&'static str>,
    ) -> Result<(), LockError> {
        let inversion = lock(&self.seen).note(held, wanted, function.unwrap_or("lock()"));
        let Some(Inversion { held, wanted, here, there, first }) = inversion else {
            return Ok(());
        };
        if first {
            tracing::warn!(
                code = "lock.order",
                %held, %wanted, here, there,
                "locks are taken in opposite order in two places, which can wait for each other: take them in one call, or \
                 everywhere in one order"
            );
        }
        if !self.refuses.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(LockError::OrderInversion { name: wanted, held: Box::new(held), here, there })
    }

    /// A call for one of `permits` was refused: reports the holder if that asked for another number, once for each template.
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
                    "the holder has asked for another number of permits of this name, as in a rolling deployment: each call's own \
                     number counts. If it lasts, one of the two is mistaken"
                );
            }
        }
    }
}

impl Seen {
    /// Remembers what is asked for under what, unless it is known the other way round.
    fn note(&mut self, held: &[Name], wanted: &[&Name], here: Place) -> Option<Inversion> {
        let mut inversion = None;
        for held in held {
            for wanted in wanted {
                let (Some(outer), Some(inner)) = (family(held), family(wanted)) else {
                    continue;
                };
                if outer == inner {
                    continue;
                }
                let turned = (inner, outer);
                if let Some(there) = self.pairs.get(&turned) {
                    let there = *there;
                    let first = self.reported.insert(turned);
                    inversion.get_or_insert_with(|| Inversion {
                        held: held.clone(),
                        wanted: (*wanted).clone(),
                        here,
                        there,
                        first,
                    });
                } else if self.pairs.len() < REMEMBERED {
                    let (inner, outer) = turned;
                    self.pairs.entry((outer, inner)).or_insert(here);
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
    use crate::values::name::{LockName as _, render};

    fn order(id: u64) -> Name {
        render("orders/<id>", &[&id])
    }

    #[test]
    fn names_further_out_and_names_without_template_count() {
        let mut seen = Seen::default();
        seen.note(&[order(1)], &[&order(2)], "here");
        assert_eq!(seen.note(&[order(2)], &[&order(1)], "there"), None);
        let [a, b, c] = ["a", "b", "c"].map(|name| name.lock_name());
        seen.note(&[a.clone(), order(1)], &[&b], "here");
        assert_eq!(seen.note(std::slice::from_ref(&b), &[&c], "here"), None);
        let inversion = seen.note(std::slice::from_ref(&b), &[&order(3)], "there").unwrap();
        assert_eq!((inversion.here, inversion.there, inversion.first), ("there", "here", true));
        assert!(seen.note(&[b], &[&a], "there").is_some());
    }

    #[test]
    fn made_up_names_do_not_pile_up() {
        let mut seen = Seen::default();
        for n in 0..2 * REMEMBERED {
            seen.note(&[format!("a/{n}").lock_name()], &[&order(1)], "here");
        }
        assert_eq!(seen.pairs.len(), REMEMBERED);
    }
}
