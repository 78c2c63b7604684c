//! One of so many permits of a name (rule P37): any that is free, as long as all agree on how many there are.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::sync::Arc;

use crate::clock::Moment;
use crate::core::mode::{Mode, Seat};
use crate::core::place;
use crate::core::queue::{Queue, Slot};
use crate::core::request::Key;
use crate::core::{CallId, Core, Refused};

impl Core {
    /// Others have another number of permits of a name: all at the head of the line that agree with us are told.
    pub(super) fn refuse_mismatch(
        &mut self,
        now: Moment,
        place: &Key,
        theirs: NonZeroU16,
        holder: &Option<Arc<[u8]>>,
    ) {
        let mode = place::seat_of(place).mode();
        let Some(line) = self.queues.get(place::name_of(place)) else {
            return;
        };
        let calls = line.calls.iter().map(|call| (*call, self.calls.get(call)));
        let calls = calls
            .map_while(|(call, c)| Some((call, c.filter(|c| c.mode == mode)?.position(place))));
        for (call, name) in calls.collect::<Vec<_>>() {
            let why = Refused::Mismatch {
                name,
                theirs,
                holder: holder.clone(),
            };
            self.reject(now, vec![call], &why);
        }
    }

    /// Finds permits for a call: the keys that wait for it, or for whoever is the head of the line, or that may be put. False:
    /// all are taken here, or another number of them.
    pub(super) fn choose_permits(&mut self, now: Moment, call: CallId, of: NonZeroU16) -> bool {
        let Some(c) = self.calls.get(&call) else {
            return false;
        };
        if c.names.iter().any(|name| self.head(name) != Some(call)) {
            return false;
        }
        let mode = Mode::Permits(of);
        let mut chosen = Vec::with_capacity(c.names.len());
        let mut other = None;
        let mut going = false;
        for (at, name) in c.names.iter().enumerate() {
            let name = place::name_of(name);
            let waits = |queue: &Queue| queue.is_in_line() && self.fits(queue);
            let disagree = self.places(name).filter_map(|(_, queue)| {
                let theirs = mode.mismatch(queue.seat)?;
                let has = matches!(queue.slot, Slot::Held { .. } | Slot::Retained);
                // Where it is on its way out nobody disagrees any more.
                (!matches!(queue.slot, Slot::Free)).then_some((queue, theirs, has))
            });
            let disagree: Vec<_> = disagree.collect();
            if let Some((queue, theirs, _)) = disagree.iter().find(|(_, _, has)| *has) {
                other = Some((at, *theirs, queue.record.clone()));
                break;
            }
            going |= !disagree.is_empty();
            let waiting = self.places(name).find(|(_, queue)| waits(queue));
            let taken = self.places(name).filter_map(|(_, queue)| match queue.seat {
                Seat::Permit { index, .. } if !matches!(queue.slot, Slot::Free) => Some(index),
                _ => None,
            });
            let taken: BTreeSet<u16> = taken.collect();
            let free = || (0..of.get()).find(|index| !taken.contains(index));
            let place = waiting
                .map(|(place, _)| place.clone())
                .or_else(|| free().map(|index| place::permit(name, of, index)));
            chosen.extend(place);
        }
        if let Some((name, theirs, holder)) = other {
            let why = Refused::Mismatch {
                name,
                theirs,
                holder,
            };
            self.reject(now, vec![call], &why);
            return false;
        }
        if going || chosen.len() < c.names.len() {
            let name = c.names.first().map(|name| place::name_of(name));
            let taken = name.map(|name| place::permit(name, of, 0));
            self.refuse_tries(now, taken.as_slice());
            return false;
        }
        if let Some(c) = self.calls.get_mut(&call) {
            c.names = chosen.into();
        }
        true
    }
}
