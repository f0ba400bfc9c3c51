//! Objects that some hosts have `local` and others `replicated`, while hosts are reloaded one after another: which, where, and when that is
//! over.

use std::collections::BTreeMap;
use std::time::Duration;

use asterism_placement::Time;

use super::job::{HostContext, HostLog, Job};
use asterism_event_log::Event;
use asterism_host_view::placements::{PlacementDocument, documents};

/// How long an object is to be shared, and is not, before that is reported.
const WAITS: Duration = Duration::from_secs(2);

/// What was reported of an object.
#[derive(Debug)]
struct Reported {
    /// The hosts that have it otherwise.
    differing: Vec<String>,
    /// Since when it waits, and whether that was reported.
    waits: Option<(Time, bool)>,
}

/// Objects whose placement changes.
#[derive(Debug, Default)]
pub(super) struct PlacementWatch(BTreeMap<String, Reported>);

impl Job for PlacementWatch {
    fn turn(&mut self, now: Time, host: &HostContext, log: &mut HostLog<'_>) {
        let channel = host.channel.snapshot();
        let documents = documents(&channel, &host.view.names);
        self.update(now, &documents, |event| log.write(&event));
    }
}

impl PlacementWatch {
    fn update(&mut self, now: Time, documents: &[PlacementDocument], mut log: impl FnMut(Event)) {
        for document in documents {
            let object = document.object.clone();
            let reported = self.0.entry(object).or_insert_with(|| Reported {
                differing: Vec::new(),
                waits: None,
            });
            if reported.differing != document.differing {
                reported.differing.clone_from(&document.differing);
                if !document.differing.is_empty() {
                    log(differs(document));
                }
            }
            match (&mut reported.waits, document.waits) {
                (waits, false) => *waits = None,
                (None, true) => reported.waits = Some((now, false)),
                (Some((since, was_reported)), true) => {
                    if now >= *since + WAITS && !core::mem::replace(was_reported, true) {
                        log(waits(document));
                    }
                }
            }
        }
        let is_over = |object: &String| documents.iter().all(|document| document.object != *object);
        self.0.retain(|object, _| {
            let is_over = is_over(object);
            if is_over {
                log(Event::info("placement-agreed")
                    .with("object", object)
                    .effect(
                        "all hosts have it in the same placement, and what they share is the same",
                    ));
            }
            !is_over
        });
    }
}

fn differs(document: &PlacementDocument) -> Event {
    Event::warning("placement-differs")
        .with("object", &document.object)
        .with("here", &document.placement)
        .with("members", document.differing.join(","))
        .effect("it is shared by all hosts as long as one of them has it replicated")
        .cure("reload the others with the same placement")
}

fn waits(document: &PlacementDocument) -> Event {
    Event::warning("placement-waits")
        .with("object", &document.object)
        .effect("an instance holds more of its entries than a host's share, so writes of this host are not shared yet")
        .cure("wait until entries have ended, or give all hosts placement = \"local\" again; a larger capacity needs a restart")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_difference_is_reported_once_and_its_end() {
        let document = |differing: &[&str], waits| PlacementDocument {
            object: "flows".to_owned(),
            placement: "local".to_owned(),
            shared: true,
            waits,
            settled: false,
            differing: differing.iter().map(|&name| name.to_owned()).collect(),
            silent: Vec::new(),
        };
        let mut watch = PlacementWatch::default();
        let start = Time::ZERO + WAITS;
        let mut events = |now: Time, documents: &[PlacementDocument]| {
            let mut names = Vec::new();
            watch.update(now, documents, |event| {
                let text = format!("{event:?}");
                let kinds = ["placement-differs", "placement-waits", "placement-agreed"];
                names.extend(kinds.into_iter().filter(|kind| text.contains(kind)));
            });
            names
        };
        assert_eq!(
            events(start, &[document(&["b", "c"], false)]),
            ["placement-differs"]
        );
        assert!(events(start, &[document(&["b", "c"], false)]).is_empty());
        assert_eq!(
            events(start, &[document(&["c"], true)]),
            ["placement-differs"]
        );
        assert!(events(start, &[document(&["c"], true)]).is_empty());
        assert_eq!(
            events(start + WAITS, &[document(&[], true)]),
            ["placement-waits"]
        );
        assert!(events(start + WAITS * 2, &[document(&[], true)]).is_empty());
        assert_eq!(events(start + WAITS * 3, &[]), ["placement-agreed"]);
        assert!(events(start + WAITS * 3, &[]).is_empty());
    }
}
