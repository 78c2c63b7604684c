//! Lock order: A under B here and B under A there is a deadlock to come, and is reported before it is one.
//!
//! Names count by their templates, as a deadlock needs no particular order or account; a name without a template counts for itself. Two
//! names of one template say nothing: there the values decide, and their order is unknown.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::values::error::LockError;
use crate::values::name::Name;

/// Pairs that are remembered: a program has few, unless it makes up its names as it goes.
const PAIRS: usize = 1024;

/// The orders in which one engine's locks have been taken.
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
    /// The pairs that have been reported.
    reported: BTreeSet<(Family, Family)>,
}

/// A template, or the name where there is none.
pub(super) type Family = Cow<'static, str>;

/// The function that asked; `lock()`, where it was called by hand.
type Place = &'static str;

/// Two places that take the same locks in opposite order.
#[derive(Debug, PartialEq, Eq)]
struct Inversion {
    held: Name,
    wanted: Name,
    here: Place,
    there: Place,
    /// It was not reported before.
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
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let inversion = seen.note(held, wanted, function.unwrap_or("lock()"));
        drop(seen);
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
                } else if self.pairs.len() < PAIRS {
                    let (inner, outer) = turned;
                    self.pairs.entry((outer, inner)).or_insert(here);
                }
            }
        }
        inversion
    }
}

/// What names count by.
pub(super) fn family(name: &Name) -> Option<Family> {
    match name.template() {
        Some(template) => Some(Cow::Borrowed(template)),
        None => name.text().map(|text| Cow::Owned(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::name::{LockName as _, render};

    const HERE: Place = "shop::ship";
    const THERE: Place = "shop::restock";

    fn order(id: u64) -> Name {
        render("orders/<id>", &[&id])
    }

    fn stock() -> Name {
        render("stock", &[])
    }

    #[test]
    fn inversion_is_reported_once_with_both_places() {
        let mut seen = Seen::default();
        assert_eq!(seen.note(&[order(1)], &[&stock()], HERE), None);
        assert_eq!(seen.note(&[order(2)], &[&stock()], THERE), None);
        let inversion = seen.note(&[stock()], &[&order(3)], THERE).expect("an inversion");
        assert_eq!((inversion.here, inversion.there), (THERE, HERE));
        assert_eq!((inversion.held, inversion.wanted), (stock(), order(3)));
        assert!(inversion.first);
        let again = seen.note(&[stock()], &[&order(4)], THERE);
        assert!(again.is_some_and(|again| !again.first));
        // The order that came first stays the right one.
        assert_eq!(seen.note(&[order(1)], &[&stock()], HERE), None);
    }

    #[test]
    fn what_is_held_further_out_counts_too() {
        let mut seen = Seen::default();
        let other = "c".lock_name();
        seen.note(&[stock(), order(1)], &[&other], HERE);
        assert!(seen.note(&[other], &[&order(1)], THERE).is_some());
    }

    #[test]
    fn two_of_one_template_say_nothing_and_names_without_one_count_for_themselves() {
        let mut seen = Seen::default();
        seen.note(&[order(1)], &[&order(2)], HERE);
        assert_eq!(seen.note(&[order(2)], &[&order(1)], HERE), None);
        let [a, b, c] = ["a", "b", "c"].map(|name| name.lock_name());
        seen.note(std::slice::from_ref(&a), &[&b], HERE);
        assert_eq!(seen.note(std::slice::from_ref(&b), &[&c], HERE), None);
        assert!(seen.note(&[b], &[&a], HERE).is_some());
    }

    #[test]
    fn made_up_names_do_not_pile_up() {
        let mut seen = Seen::default();
        for n in 0..2 * PAIRS {
            let name = format!("a/{n}").lock_name();
            seen.note(&[name], &[&stock()], HERE);
        }
        assert_eq!(seen.pairs.len(), PAIRS);
    }
}
