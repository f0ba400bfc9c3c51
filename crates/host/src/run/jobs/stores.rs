//! The store of remote objects: that it is away, that it is back, and that another of its servers is the primary.

use std::time::Duration;

use asterism_embedded_store::{EndedError, RunningServer};
use asterism_placement::Time;

use super::job::{HostContext, HostLog, Job};
use crate::run::embedded_store::growth_event;
use asterism_event_log::Event;
use asterism_host_view::store::{StoreDocument, away_effect};

/// How long a store is away before that is reported: shorter is a connection that is made again.
const AWAY_US: u64 = 500_000;

/// How often it is said at most that batches were made in part: each may be.
const TORN_EVERY: Duration = Duration::from_secs(10);

/// What was reported.
#[derive(Debug, Default)]
pub(super) struct StoreWatch {
    /// That the store is away, since then.
    away: Option<Time>,
    /// Where its primary was.
    primary: Option<String>,
    /// Batches of which a part was made, of which was said; and from when on more are said of.
    torn: (u64, Time),
    /// The store that this host runs, or its shard.
    own: Option<RunningServer>,
    /// Times that its file was not rewritten, of which was said.
    not_rewritten: u64,
}

impl Job for StoreWatch {
    fn turn(&mut self, now: Time, host: &HostContext, log: &mut HostLog<'_>) {
        if let Some(own) = &mut self.own {
            let why = own.why_ended().map(|why| ended(&why));
            let grows = growth_event(&own.statistics(), &mut self.not_rewritten);
            why.iter().chain(&grows).for_each(|event| log.write(event));
        }
        let store = host.view.store.document(now.as_micros());
        let cure = || host.view.store.cure();
        if let Some(store) = store {
            let away = self.update(now, &store, cure);
            let events = away.into_iter().chain(self.primary_event(&store));
            let events = events.chain(self.torn_event(now, &store));
            events.for_each(|event| log.write(&event));
        }
    }
}

impl StoreWatch {
    /// Of a host that runs this one.
    pub(super) fn of(own: Option<RunningServer>) -> Self {
        Self {
            own,
            ..Self::default()
        }
    }

    /// Ends the store that this host runs.
    pub(super) fn end(self, log: &mut HostLog<'_>) {
        if let Some(Err(why)) = self.own.map(RunningServer::stop) {
            log.write(&ended(&why));
        }
    }

    fn update(
        &mut self,
        now: Time,
        store: &StoreDocument,
        cure: impl Fn() -> &'static str,
    ) -> Option<Event> {
        let since = now.saturating_sub(Duration::from_micros(store.for_us));
        match (self.away, store.connected) {
            (None, false) if store.for_us >= AWAY_US => {
                self.away = Some(since);
                let event = Event::error("store-away")
                    .with("store", store.part_away())
                    .with("why", store.away.as_deref().unwrap_or("?"));
                Some(event.effect(away_effect()).cure(cure()))
            }
            (Some(away), true) => {
                self.away = None;
                let for_ms = since.since(away).as_millis();
                let event = Event::info("store-back").with("store", &store.address);
                Some(event.with("away_ms", for_ms))
            }
            _ => None,
        }
    }

    /// That the store made a part of what packets wrote together.
    fn torn_event(&mut self, now: Time, store: &StoreDocument) -> Option<Event> {
        let (before, from) = self.torn;
        (store.torn > before && now >= from).then(|| {
            self.torn = (store.torn, now + TORN_EVERY);
            let event = Event::error("store-torn").with("batches", store.torn - before);
            let event = event.effect("some entries have no end, or sums lack additions: the store undid nothing of what it had made");
            event.cure("look which key that begins with the name of [store] has another type; stop all hosts and remove them")
        })
    }

    /// That all instances use another server of the store than before.
    fn primary_event(&mut self, store: &StoreDocument) -> Option<Event> {
        if !store.connected || self.primary.as_ref() == Some(&store.address) {
            return None;
        }
        let before = self.primary.replace(store.address.clone())?;
        let event = Event::info("store-primary").with("store", &store.address);
        Some(event.with("before", before))
    }
}

/// What is said of a store of this host that could not go on.
fn ended(why: &EndedError) -> Event {
    let event = Event::error("embedded-store-ended").with("why", why);
    let event = event.effect(
        "no host reaches what it had, and what it acknowledged last may not be in its file",
    );
    event.cure("look whether its folder can be written, and start this host again")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(connected: bool, for_us: u64) -> StoreDocument {
        StoreDocument {
            address: "192.0.2.7:6379".to_owned(),
            addresses: Vec::new(),
            shards: Vec::new(),
            name: "lab".to_owned(),
            connected,
            for_us,
            away: (!connected).then(|| "closed".to_owned()),
            round_trip_us: None,
            keys_read: 0,
            entries: std::collections::BTreeMap::new(),
            embedded_bytes: None,
            embedded_refused: None,
            cache: None,
            decided: 0,
            crossed: 0,
            ended: 0,
            expired: 0,
            refused: 0,
            nonsense: 0,
            torn: 0,
            misplaced: 0,
            connections: 0,
            connects: 0,
            timeouts: 0,
        }
    }

    #[test]
    fn a_store_that_is_away_is_reported_once_and_its_return() {
        let mut watch = StoreWatch::default();
        let mut at = |ms: u64, connected: bool, for_ms: u64| {
            let now = Time::from_micros(ms * 1_000);
            let event = watch.update(now, &store(connected, for_ms * 1_000), || "look");
            event.map(|event| format!("{event:?}"))
        };
        assert_eq!(at(100, false, 100), None, "it was just begun");
        assert_eq!(at(200, true, 50), None, "nobody missed it");
        assert_eq!(at(1_000, false, 300), None);
        let away = at(1_300, false, 600).expect("it is away");
        assert!(
            away.contains("store-away") && away.contains("closed"),
            "{away}"
        );
        assert_eq!(at(5_000, false, 4_300), None);
        let back = at(6_100, true, 100).expect("it is back");
        assert!(
            back.contains("store-back") && back.contains("5300"),
            "{back}"
        );
        assert_eq!(at(7_000, true, 1_000), None);
    }

    #[test]
    fn another_primary_is_reported_once() {
        let mut watch = StoreWatch::default();
        let mut at = |address: &str, connected: bool| {
            let mut store = store(connected, 0);
            store.address = address.to_owned();
            let event = watch.primary_event(&store);
            event.map(|event| format!("{event:?}"))
        };
        assert_eq!(at("a, b", false), None);
        assert_eq!(at("a", true), None, "the first one");
        assert_eq!(at("a", false), None);
        assert_eq!(at("b", false), None, "not all instances have it");
        let event = at("b", true).expect("another one");
        assert!(event.contains("store-primary"), "{event}");
        assert_eq!(at("b", true), None);
    }

    #[test]
    fn batches_that_were_made_in_part_are_reported_every_ten_seconds_at_most() {
        let mut watch = StoreWatch::default();
        let mut at = |second: u64, torn: u64| {
            let document = StoreDocument {
                torn,
                ..store(true, 0)
            };
            let event = watch.torn_event(Time::from_micros(second * 1_000_000), &document);
            event.map(|event| format!("{event:?}"))
        };
        assert_eq!(at(1, 0), None);
        let event = at(2, 3).expect("some");
        assert!(
            event.contains("store-torn") && event.contains("\"3\""),
            "{event}"
        );
        assert_eq!(at(13, 3), None);
        assert!(at(14, 4).is_some());
        assert_eq!(at(15, 900), None, "not in each turn");
        let event = at(24, 1_000).expect("all since then");
        assert!(event.contains("\"996\""), "{event}");
    }
}
