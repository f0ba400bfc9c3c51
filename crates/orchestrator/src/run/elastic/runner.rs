//! The runner: one turn after the other, while this orchestrator leads. See the module above.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use asterism_elasticity::{
    BucketLoad, Elasticity, Explanation, Rules, Span, Standing, State, UnixMs,
};

use super::ScaleError;
use super::record::LaunchRecord;
use super::sample::{samples, standing};
use super::world::World;
use crate::launch::{Found, FoundState};
use crate::run::store::NotStored;
use crate::run::view::{AskingError, ClusterView, HostView, Logged};

/// After an error of the store it is asked again after so long: its thread has leadership to renew.
const STORE_RETRY: Span = Span::seconds(1);
/// Changes of the decisions' state alone are stored so often.
const STATE_INTERVAL: Span = Span::seconds(2);
/// A host is heard while its last heartbeat is so young, in milliseconds.
const HEARD_MS: u64 = 2_000;

/// What is started for each host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostTemplate {
    /// The hosts' configuration, as they find it: an absolute path.
    pub configuration: PathBuf,
    /// Further arguments of `asterism run`.
    pub arguments: Vec<String>,
    /// Variables of their environment.
    pub environment: BTreeMap<String, String>,
}

/// What this orchestrator knows of a place for as long as it leads, and no longer.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// The last launch that was seen to run.
    pub(super) ran: u64,
    pub(super) ran_since: UnixMs,
    /// The last launch whose end was noted.
    pub(super) ended: u64,
    /// The last launch that was tried here.
    pub(super) tried: u64,
    /// The pause before the next start, and when it ends.
    pub(super) pause: Span,
    pub(super) not_before: UnixMs,
    /// What becomes of a place whose launch failed.
    pub(super) failed: Option<Failed>,
    /// Whether the record was seen to drain the host, since it leaves.
    pub(super) was_drained: bool,
    /// Since when it leaves and gets no packets worth mentioning.
    pub(super) quiet_since: Option<UnixMs>,
    /// Since when it is withdrawn, and since when the steering has that in force.
    pub(super) withdrawn_since: Option<UnixMs>,
    pub(super) unsteered_since: Option<UnixMs>,
    /// Since when its process is asked to end.
    pub(super) stopping_since: Option<UnixMs>,
    /// When the controller was given an order about it last.
    pub(super) ordered_at: UnixMs,
    /// The host was stopped, and the orders before that are to be taken back.
    pub(super) must_restore: bool,
}

/// What becomes of a place whose launch failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// Nothing runs there; the decisions choose a place again.
    Off,
    /// It is launched again, under the next number.
    Again,
}

/// See the module.
pub(super) struct Runner {
    pub(super) name: String,
    pub(super) places: Vec<String>,
    /// The rules of the policy; of a cluster without one, as many hosts as places.
    pub(super) rules: Rules,
    pub(super) is_policy: bool,
    pub(super) host: HostTemplate,
    pub(super) find_interval: Span,
    term: Option<u64>,
    pub(super) led_since: UnixMs,
    stored: Option<(LaunchRecord, u64)>,
    pub(super) elasticity: Elasticity,
    pub(super) found: Vec<Found>,
    pub(super) find_at: UnixMs,
    pub(super) seen: BTreeMap<String, Seen>,
    /// Since when each host has its standing.
    since: BTreeMap<String, (Standing, UnixMs)>,
    pub(super) buckets: Option<BTreeMap<String, Vec<BucketLoad>>>,
    pub(super) buckets_at: UnixMs,
    pub(super) decide_at: UnixMs,
    /// What was held last, so that it is reported once.
    pub(super) held: Option<String>,
    written_at: UnixMs,
    retry_at: UnixMs,
    /// Failures that were reported and go on.
    reported: BTreeSet<String>,
}

/// What is true in one turn.
#[derive(Clone, Copy)]
pub(super) struct Turn<'a> {
    pub(super) now: UnixMs,
    pub(super) view: &'a ClusterView,
}

impl<'a> Turn<'a> {
    pub(super) fn host(&self, name: &str) -> Option<&'a HostView> {
        self.view.hosts.iter().find(|host| host.name == name)
    }
}

/// Whether a host's process was heard lately, and has not said that it ends.
pub(super) fn is_heard(host: &HostView) -> bool {
    use crate::controller::Stage;
    let runs = |stage: Stage| !matches!(stage, Stage::Leaving(_) | Stage::Ended(_));
    host.stage.is_some_and(runs) && host.silent_ms < HEARD_MS
}

impl Runner {
    pub(super) fn new(
        name: String,
        places: Vec<String>,
        mut rules: Rules,
        is_policy: bool,
        host: HostTemplate,
        find_interval: Span,
    ) -> Runner {
        let most = u32::try_from(places.len()).unwrap_or(u32::MAX).max(1);
        rules.max = rules.max.min(most);
        rules.min = rules.min.min(rules.max);
        Runner {
            elasticity: Elasticity::new(rules.clone()),
            name,
            places,
            rules,
            is_policy,
            host,
            find_interval,
            term: None,
            led_since: UnixMs(0),
            stored: None,
            found: Vec::new(),
            find_at: UnixMs(0),
            seen: BTreeMap::new(),
            since: BTreeMap::new(),
            buckets: None,
            buckets_at: UnixMs(0),
            decide_at: UnixMs(0),
            held: None,
            written_at: UnixMs(0),
            retry_at: UnixMs(0),
            reported: BTreeSet::new(),
        }
    }

    /// One turn. Only the leader does anything.
    ///
    /// # Errors
    /// The controller was not asked; with [`AskingError::Ended`] there will be no other turn.
    pub(super) fn turn(&mut self, world: &mut impl World) -> Result<(), AskingError> {
        let view = world.view()?;
        let turn = Turn {
            now: world.now(),
            view: &view,
        };
        let Some(term) = view.term else {
            self.follow();
            return Ok(());
        };
        if self.term != Some(term) {
            self.lead(term, turn.now);
        }
        if self.read(world, turn.now) && self.find(world, turn.now) {
            self.advance(world, turn, term);
        }
        Ok(())
    }

    fn advance(&mut self, world: &mut impl World, turn: Turn<'_>, term: u64) {
        let Some((record, version)) = self.stored.clone() else {
            return;
        };
        let mut next = record.clone();
        self.adopt(world, turn, &mut next);
        self.note_standings(world, turn, &next);
        self.note_ends(world, turn, &mut next);
        self.leave(world, turn, &mut next);
        self.restart(world, turn, &mut next);
        let decided = self.decide(world, turn, &mut next);
        next.state = self.elasticity.state().clone();
        if !self.store(world, turn.now, term, (record, version), next) {
            return;
        }
        decided.carry_out(world);
        self.launch_due(world, turn);
    }

    fn follow(&mut self) {
        (self.term, self.stored) = (None, None);
    }

    /// Begins a term: what is known of hosts from an earlier one need not be so.
    fn lead(&mut self, term: u64, now: UnixMs) {
        (self.term, self.stored) = (Some(term), None);
        self.led_since = now;
        self.find_at = UnixMs(0);
        self.retry_at = UnixMs(0);
        self.seen.clear();
        self.since.clear();
        self.held = None;
    }

    /// Reads what is stored, if it is not known.
    fn read(&mut self, world: &mut impl World, now: UnixMs) -> bool {
        if self.stored.is_some() {
            return true;
        }
        if now < self.retry_at {
            return false;
        }
        match world.read() {
            Ok((mut record, version)) => {
                self.forget("store");
                record.places.retain(|name, _| self.places.contains(name));
                let rules = self.rules_for(record.ordered);
                self.elasticity = Elasticity::resume(rules, record.state.clone());
                self.stored = Some((record, version));
                true
            }
            Err(why) => {
                self.retry_at = now.after(STORE_RETRY);
                self.report(world, "store", "launching-failed", why);
                false
            }
        }
    }

    /// Asks the launcher for all of its hosts, when it is time.
    fn find(&mut self, world: &mut impl World, now: UnixMs) -> bool {
        if now < self.find_at {
            return true;
        }
        match world.launcher().find() {
            Ok(found) => {
                self.forget("find");
                self.found = found;
                self.find_at = now.after(self.find_interval);
                true
            }
            Err(error) => {
                self.find_at = now.after(STORE_RETRY.max(self.find_interval));
                let text = error.to_string();
                self.report(world, "find", "launching-failed", text);
                false
            }
        }
    }

    /// Stores what has changed, before anything is done by it. Whether the store has it.
    fn store(
        &mut self,
        world: &mut impl World,
        now: UnixMs,
        term: u64,
        (record, version): (LaunchRecord, u64),
        next: LaunchRecord,
    ) -> bool {
        let is_order = (&record.places, record.ordered) != (&next.places, next.ordered);
        let age = now.since(self.written_at);
        let is_due = match record.is_as(&next) {
            true => has_waits(&next.state) && age >= self.rules.stale_after,
            false => is_order || age >= STATE_INTERVAL,
        };
        if !is_due {
            return true;
        }
        if now < self.retry_at {
            return !is_order;
        }
        match world.write(&next, version, term) {
            Ok(version) => {
                self.forget("store");
                self.stored = Some((next, version));
                self.written_at = now;
                true
            }
            // It is read again: whether it was written may not be known.
            Err(error) => {
                self.stored = None;
                self.retry_at = now.after(STORE_RETRY);
                if let NotStored::Failed(why) = error {
                    self.report(world, "store", "launching-failed", why);
                }
                false
            }
        }
    }

    /// What the launcher found of a place.
    pub(super) fn found(&self, name: &str) -> Option<&Found> {
        self.found.iter().find(|found| found.name == name)
    }

    /// Whether the launcher knows that this launch of a place has ended.
    pub(super) fn has_ended(&self, name: &str, launch: u64) -> bool {
        let is_it = |found: &Found| {
            found.incarnation == launch && matches!(found.state, FoundState::Ended(_))
        };
        self.found(name).is_some_and(is_it)
    }

    /// The launches as the store has them, and their rules.
    pub(super) fn stored(&self) -> Option<&LaunchRecord> {
        self.stored.as_ref().map(|(record, _)| record)
    }

    /// Notes since when each host has its standing.
    fn note_standings(&mut self, world: &mut impl World, turn: Turn<'_>, record: &LaunchRecord) {
        let on = record.places.iter().filter(|(_, place)| place.is_on());
        let mut since = BTreeMap::new();
        for (name, place) in on {
            let Some(host) = turn.host(name) else {
                continue;
            };
            let standing = standing(place, host);
            let before = self.since.get(name).filter(|(known, _)| *known == standing);
            let began = before.map_or(turn.now, |(_, since)| *since);
            since.insert(name.clone(), (standing, began));
        }
        self.since = since;
        let late = |(standing, since): &(Standing, UnixMs)| {
            *standing == Standing::Starting && turn.now.since(*since) > self.rules.launch_within
        };
        let late: Vec<String> = self
            .since
            .iter()
            .filter(|(_, one)| late(one))
            .map(|(name, _)| name.clone())
            .collect();
        for name in &self.places.clone() {
            let topic = format!("late {name}");
            match late.contains(name) {
                true => self.report_of(world, &topic, "host-late", Some(name), format!(
                    "{name} does not take packets {} after its launch: see its log, and `asterism doctor`",
                    self.rules.launch_within
                )),
                false => self.forget(&topic),
            }
        }
    }

    /// The samples of all hosts.
    pub(super) fn samples(
        &self,
        turn: Turn<'_>,
        record: &LaunchRecord,
    ) -> Vec<asterism_elasticity::HostSample> {
        samples(
            record,
            turn.view,
            &self.since,
            self.buckets.as_ref(),
            turn.now,
        )
    }

    /// The rules in force: the policy's, or those of an order.
    pub(super) fn rules_for(&self, ordered: Option<u32>) -> Rules {
        ordered.map_or_else(|| self.rules.clone(), |hosts| self.rules.exactly(hosts))
    }

    /// Takes the order that there be so many hosts. Whether it changed anything.
    ///
    /// # Errors
    /// [`ScaleError`]: nothing was changed.
    pub(super) fn scale(
        &mut self,
        world: &mut impl World,
        to: u32,
        why: Option<&str>,
    ) -> Result<bool, ScaleError> {
        let now = world.now();
        let (term, (record, version)) = match (self.term, self.stored.clone()) {
            (Some(term), Some(stored)) => (term, stored),
            (None, _) => return Err(ScaleError::DoesNotLead),
            (Some(_), None) => return Err(ScaleError::NotRead),
        };
        let (least, most) = match self.is_policy {
            true => (self.rules.minimum(now).0, self.rules.max),
            false => (1, u32::try_from(self.places.len()).unwrap_or(u32::MAX)),
        };
        if !(least..=most).contains(&to) {
            return Err(ScaleError::Bounds { to, least, most });
        }
        if !world.launcher().abilities().launches {
            return Err(ScaleError::Manual);
        }
        let on = record.places.values().filter(|place| place.is_on());
        let is_so = record.ordered == Some(to)
            || (record.ordered.is_none() && on.count() == to as usize && self.is_policy);
        if is_so {
            return Ok(false);
        }
        let mut next = record.clone();
        next.ordered = Some(to);
        // An operator who orders hosts knows why launches failed.
        self.elasticity.launch_succeeded();
        next.state = self.elasticity.state().clone();
        self.retry_at = UnixMs(0);
        if !self.store(world, now, term, (record, version), next) {
            return Err(ScaleError::NotStored);
        }
        self.decide_at = now;
        let because = why.map_or_else(String::new, |why| format!(": {why}"));
        world.log(Logged {
            kind: "scale-ordered",
            host: None,
            is_warning: false,
            text: format!("an operator orders {to} hosts{because}"),
        });
        Ok(true)
    }

    /// What would be decided now, and whether it would be carried out.
    ///
    /// # Errors
    /// [`ScaleError`]
    pub(super) fn plan(
        &mut self,
        world: &mut impl World,
    ) -> Result<(Explanation, bool), ScaleError> {
        let view = world.view().map_err(|_| ScaleError::NotRead)?;
        let turn = Turn {
            now: world.now(),
            view: &view,
        };
        let record = match (view.term, self.stored()) {
            (Some(_), Some(record)) => record,
            (None, _) => return Err(ScaleError::DoesNotLead),
            (Some(_), None) => return Err(ScaleError::NotRead),
        };
        let samples = self.samples(turn, record);
        let explained = self.elasticity.explain(turn.now, &samples);
        let launches = world.launcher().abilities().launches;
        Ok((explained, launches && view.store.error.is_none()))
    }

    /// Reports a failure once, until it is over.
    pub(super) fn report(
        &mut self,
        world: &mut impl World,
        topic: &str,
        kind: &'static str,
        text: String,
    ) {
        self.report_of(world, topic, kind, None, text);
    }

    /// The same of a host.
    pub(super) fn report_of(
        &mut self,
        world: &mut impl World,
        topic: &str,
        kind: &'static str,
        host: Option<&str>,
        text: String,
    ) {
        if self.reported.insert(topic.to_owned()) {
            world.log(Logged {
                kind,
                host: host.map(str::to_owned),
                is_warning: true,
                text,
            });
        }
    }

    pub(super) fn forget(&mut self, topic: &str) {
        if !self.reported.is_empty() {
            self.reported.remove(topic);
        }
    }
}

/// Whether the decisions wait for something, so that the next leader should know that they went on until now.
fn has_waits(state: &State) -> bool {
    !state.above.is_empty()
        || state.below.is_some()
        || state.spare.is_some()
        || !state.hot.is_empty()
}
