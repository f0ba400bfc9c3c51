//! What a function reports of its state, wherever that is: of objects here its first instance says it, and of those in a store the same
//! function, asked about the entries that the store has.

use std::time::Duration;

use asterism_function::Host;
use asterism_function::records::{Record, read_records};
use asterism_functions::blocked::BLOCKED_QUESTION;
use asterism_functions::firewall::FLOWS_QUESTION;
use asterism_host_view::{AskError, Asked, View};
use asterism_remote_store::Entries;

/// A question of a report, with the objects that a function answers it by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    number: u32,
    objects: &'static [&'static str],
}

/// Who is blocked: by sources, by a detector of signatures connections too, and by one of scans ports.
pub(super) const BLOCKED: Question = Question {
    number: BLOCKED_QUESTION,
    objects: &["blocked", "manual", "watched"],
};
/// Which flows a firewall knows.
pub(super) const FLOWS: Question = Question {
    number: FLOWS_QUESTION,
    objects: &["flows"],
};

/// Which entries of an object are meant.
#[derive(Clone, Debug)]
pub(super) enum Wanted {
    /// All.
    All,
    /// Those of these rows.
    Rows(Vec<Vec<u8>>),
    /// None.
    Nothing,
}

/// A question to a function.
#[derive(Debug)]
pub(super) struct Reported<'v> {
    view: &'v View,
    asked: Asked,
    question: Question,
    /// Those of the objects that the function has here.
    here: Vec<&'static str>,
    /// Those that are in the store.
    there: Vec<(u8, &'static str)>,
}

impl<'v> Reported<'v> {
    /// Of the function, or the stage, of this name.
    pub(super) fn of(view: &'v View, (name, asked): (&str, Asked), question: Question) -> Self {
        let in_store = view.store.listing().map_or(0, |listing| listing.objects());
        let mut reported = Self {
            view,
            asked,
            question,
            here: Vec::new(),
            there: Vec::new(),
        };
        for object in question.objects {
            let of_stage = format!("{name}.{object}");
            let is_it = |known: &&str| *known == of_stage || known == object;
            let Some(number) = view.names.objects.iter().position(is_it) else {
                continue;
            };
            match in_store >> number & 1 != 0 {
                true => reported.there.push((number as u8, object)),
                false => reported.here.push(object),
            }
        }
        reported
    }

    /// The address by which the function blocks an address itself.
    pub(super) fn source_of(&self, address: Host) -> Host {
        self.asked.source_of(address)
    }

    /// Whether some of the objects are in the store.
    pub(super) fn is_in_store(&self) -> bool {
        !self.there.is_empty()
    }

    /// Whether the function has this object.
    pub(super) fn has(&self, object: &str) -> bool {
        let there = self.there.iter().map(|(_, known)| *known);
        there
            .chain(self.here.iter().copied())
            .any(|known| known == object)
    }

    /// Calls `each` for all records of the answer, those of the store first, where `wanted` says which entries of an object are meant.
    /// The store is searched for so long at most. Gives a sentence for each part of the store that was not searched.
    ///
    /// # Errors
    /// The instance does not answer in time, or an answer is malformed.
    pub(super) fn records<R: Record>(
        &self,
        wanted: impl Fn(&str) -> Wanted,
        within: Duration,
        mut each: impl FnMut(R),
    ) -> Result<Vec<String>, AskError> {
        let (view, mut unsearched) = (self.view, Vec::new());
        let until_us = view.uptime_us() + within.as_micros() as u64;
        let is_over = || view.uptime_us() > until_us;
        let question = self.asked.question(self.question.number);
        for (number, object) in &self.there {
            let wanted = wanted(object);
            let entries = match &wanted {
                Wanted::All => Entries::All,
                Wanted::Rows(rows) => Entries::Rows(rows),
                Wanted::Nothing => continue,
            };
            let Some(listing) = view.store.listing() else {
                break;
            };
            let mut is_right = true;
            let listed = listing.report(
                question,
                (*number, entries),
                view.tick(),
                &is_over,
                &mut |part| is_right &= read_records(part, &mut each),
            );
            if !is_right {
                return Err(AskError::OtherAnswer);
            }
            for why in view.store.unsearched(&listed, false) {
                if !unsearched.contains(&why) {
                    unsearched.push(why);
                }
            }
        }
        if !self.here.is_empty() || self.there.is_empty() {
            view.records(self.asked, self.question.number, each)?;
        }
        Ok(unsearched)
    }
}
