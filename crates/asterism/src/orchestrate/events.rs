//! The events of an orchestrator, as its API shows them: the newest few thousand.
#![expect(
    clippy::disallowed_types,
    reason = "threads of the API read what the main thread writes; both hold the lock for a copy"
)]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use asterism_api::data::{Event, EventPage};
use asterism_orchestrator::run::Logged;

/// Events that are kept; older ones are lost, and readers see that they missed some.
pub const EVENTS_KEPT: usize = 4_096;

/// Kinds that are counted from the start, so that the rate of a rare one does not begin with a hole. Others are counted from their
/// first event on.
pub const COUNTED: [&str; 18] = [
    "deposes",
    "host-admitted",
    "host-awaits-evidence",
    "host-isolated",
    "host-left-out",
    "host-link-down",
    "host-runs-twice",
    "host-suspected",
    "host-takes",
    "host-unknown",
    "leads",
    "leads-no-more",
    "most-hosts-silent",
    "nobody-takes",
    "steered",
    "steering-failed",
    "store-failed",
    "store-went-back",
];

/// See the module. Clones share the events.
#[derive(Clone, Debug)]
pub struct EventRing {
    /// A number of this log's own.
    log: u64,
    events: Arc<Mutex<Noted>>,
}

#[derive(Debug)]
struct Noted {
    kept: VecDeque<Event>,
    /// How often each kind was noted. Kinds are names in the code, so there are few.
    counts: BTreeMap<&'static str, u64>,
}

impl EventRing {
    /// No events yet; `log` is random.
    #[must_use]
    pub fn new(log: u64) -> EventRing {
        EventRing {
            log,
            events: Arc::new(Mutex::new(Noted {
                kept: VecDeque::new(),
                counts: COUNTED.into_iter().map(|kind| (kind, 0)).collect(),
            })),
        }
    }

    /// How many events of each kind were noted since the start.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.noted().counts.clone()
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an event that was logged at this time.
    pub fn note(&self, at_ms: u64, logged: &Logged) {
        let mut noted = self.noted();
        *noted.counts.entry(logged.kind).or_default() += 1;
        let events = &mut noted.kept;
        let sequence = events.back().map_or(1, |last| last.sequence + 1);
        if events.len() >= EVENTS_KEPT {
            events.pop_front();
        }
        events.push_back(Event {
            sequence,
            at_ms,
            kind: logged.kind.to_owned(),
            subject: logged.host.clone().unwrap_or_else(|| "cluster".to_owned()),
            tenant: None,
            reason: logged.text.clone(),
            figures: std::collections::BTreeMap::new(),
        });
    }

    /// The number of the newest event; 0 if there is none.
    #[must_use]
    pub fn newest(&self) -> u64 {
        let events = &self.noted().kept;
        events.back().map_or(0, |last| last.sequence)
    }

    /// The events after this one, oldest first, so many at most.
    #[must_use]
    pub fn page(&self, after: u64, max: usize) -> EventPage {
        let events = &self.noted().kept;
        let newest = events.back().map_or(0, |last| last.sequence);
        let later = events.iter().filter(|event| event.sequence > after);
        EventPage {
            log: self.log,
            oldest: events.front().map_or(1, |first| first.sequence),
            newest,
            events: later.take(max).cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_events_are_kept_and_numbered() {
        let ring = EventRing::new(7);
        assert_eq!((ring.page(0, 9).oldest, ring.newest()), (1, 0));
        let logged = |number: usize| Logged {
            kind: "leads",
            host: number.is_multiple_of(2).then(|| "a".to_owned()),
            is_warning: false,
            text: number.to_string(),
        };
        for number in 1..=EVENTS_KEPT + 10 {
            ring.note(number as u64, &logged(number));
        }
        let page = ring.page(0, 2);
        assert_eq!((page.log, page.oldest), (7, 11));
        assert_eq!(page.newest, EVENTS_KEPT as u64 + 10);
        let first = &page.events[0];
        assert_eq!(
            (first.sequence, &*first.subject, &*first.reason),
            (11, "cluster", "11")
        );
        assert_eq!(page.events[1].subject, "a");
        let counts = ring.counts();
        assert_eq!(counts["leads"], EVENTS_KEPT as u64 + 10);
        assert_eq!((counts["host-left-out"], counts.len()), (0, COUNTED.len()));
        assert_eq!(ring.page(page.newest - 1, 9).events.len(), 1);
        assert_eq!(ring.page(page.newest + 5, 9).events, []);
    }
}
