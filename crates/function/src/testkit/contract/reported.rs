//! Contract clauses on a function's names and events, and on the page that explains them.

use std::collections::BTreeSet;

use asterism_state::State;

use super::shared::{MEMBERS, Spread};
use super::{Contract, Reached, must_be_empty};
use crate::function::NetworkFunction;
use crate::notice::{Notice, questions};
use crate::observable::{events_of, metrics_of, reasons_of, report_of, values_of};
use crate::own::{check_own, is_words};
use crate::stages::{objects_of, stage_names};
use crate::testkit::Testkit;

/// Notices that are asked for at a time.
const NOTICES_PER_PART: u32 = 16;

impl<F: NetworkFunction> Contract<F> {
    /// Names: of objects, of the function's own reasons, metrics and events; and a value for each metric.
    ///
    /// # Panics
    /// Where the contract is not met; so do all clauses.
    pub fn names(&self) {
        let function = (self.make)();
        let objects = objects_of(&function);
        for (place, name) in objects.iter().enumerate() {
            // Of a chain: stage.object.
            let (stage, object) = name.rsplit_once('.').unwrap_or(("stage", name));
            assert!(
                is_words(object, b'_') && is_words(stage, b'-'),
                "the object {name:?} is to be called by words joined by underscores"
            );
            assert!(
                !objects[..place].contains(name),
                "two objects are called {name:?}"
            );
        }
        if stage_names(&function).is_empty() {
            check_own(
                reasons_of(&function),
                metrics_of(&function),
                events_of(&function),
            )
            .unwrap_or_else(|error| panic!("{error}"));
        }
        let kit = self.after_steps(Testkit::new(function));
        assert_eq!(
            kit.state().objects(),
            objects,
            "the state has the objects that the function names"
        );
        assert_eq!(
            values_of(kit.function(), kit.state()).len(),
            metrics_of(kit.function()).len(),
            "each metric has one value"
        );
    }

    /// Documentation: the page names each object, and each reason, metric and event of the function's own.
    ///
    /// # Panics
    /// See [`Contract::names`].
    pub fn documentation(&self) {
        let function = (self.make)();
        // Of a chain: stage.name.
        let last = |name: &'static str| name.rsplit_once('.').map_or(name, |(_, name)| name);
        let objects = objects_of(&function)
            .iter()
            .map(|name| ("object", last(name)));
        let reasons = reasons_of(&function).iter();
        let reasons = reasons.map(|reason| ("reason", last(reason.label)));
        let metrics = metrics_of(&function).iter();
        let metrics = metrics.map(|metric| ("metric", last(metric.name)));
        let events = events_of(&function).iter();
        let events = events.filter(|event| event.id != 0);
        let events = events.map(|event| ("event", event.text));
        let all = objects.chain(reasons).chain(metrics).chain(events);
        let absent = all.filter(|(_, name)| !self.page.contains(name));
        let faults: Vec<_> = absent
            .map(|(what, name)| format!("the page says nothing of the {what} {name:?}"))
            .collect();
        must_be_empty(&faults);
    }

    /// Events: those that it tells of are those that are listed, each one that is listed is reached or explained, none is reported twice,
    /// and all instances tell the same ones.
    ///
    /// # Panics
    /// See [`Contract::names`].
    pub fn events(&self) {
        let mut kit = Testkit::new((self.make)());
        let _ = self.all_outcomes(&mut kit);
        let reported = reported(kit.function(), kit.state());
        let mut faults = Vec::new();
        let known = events_of(kit.function());
        for event in known {
            if !self.events.iter().any(|(listed, _)| listed == event) {
                faults.push(format!("{:?} is not listed", event.text));
            }
        }
        for (event, reached) in self.events {
            if !known.contains(event) {
                faults.push(format!("{:?} is not of its events", event.text));
            }
            let is_reported = reported.iter().any(|notice| notice.is(event));
            match (reached, is_reported) {
                (Reached::ByPackets, false) => faults.push(format!(
                    "{:?} is reached by no packet: add one, or say why",
                    event.text
                )),
                (Reached::Otherwise(_), true) => {
                    faults.push(format!("{:?} is reached by packets: say so", event.text))
                }
                (Reached::Otherwise(""), false) => {
                    faults.push(format!("why is {:?} not reached?", event.text));
                }
                _ => {}
            }
        }
        let mut subjects = BTreeSet::new();
        for notice in &reported {
            if !known.iter().any(|event| notice.is(event)) {
                faults.push(format!("{notice:?} is of no kind that is listed"));
            }
            if !subjects.insert(notice.subject()) {
                faults.push(format!("{notice:?} is reported twice"));
            }
        }
        must_be_empty(&faults);

        let mut dealt = Spread::over(self, MEMBERS);
        dealt.all();
        let of = |member| {
            let mut reported =
                self::reported(dealt.cluster.function(), dealt.cluster.state(member));
            reported.sort_by_key(|notice| (notice.subject(), notice.first, notice.member));
            reported
        };
        let first = of(0);
        for member in 1..usize::from(MEMBERS) {
            assert_eq!(
                of(member),
                first,
                "instances 0 and {member} tell of other events though all was reported"
            );
        }
    }
}

/// All notices of an instance, of a chain those of each stage.
fn reported<F: NetworkFunction>(function: &F, state: &F::State) -> Vec<Notice> {
    let mut reported = Vec::new();
    for question in questions(stage_names(function).len()) {
        let mut cursor = Some(0);
        while let Some(from) = cursor {
            let mut bytes = Vec::new();
            cursor = report_of(
                function,
                state,
                question,
                (from, NOTICES_PER_PART),
                &mut bytes,
            );
            assert!(
                Notice::read_all(&bytes, |notice| reported.push(notice)),
                "what is distinguished from {from} on are not notices"
            );
        }
    }
    reported
}
