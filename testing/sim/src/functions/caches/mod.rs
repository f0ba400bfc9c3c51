//! Web caches whose digests all hosts know: one cache reports stored and released objects, and a host fetches the digest of
//! another now and then. Every host answers as one box would, as far as it can know; no host removes an object that was not
//! there.
//!
//! Objects have bits of their own in both filters, so that a box knows each object separately, and an answer is right or
//! wrong.

mod frames;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use asterism_function::Observable;
use asterism_functions::cache_digests::{
    BLOCK_BYTES, CONTROL, CacheDigests, Counted, FRAME_BLOCKS_MAX, read_directory, read_mask,
};
use asterism_placement::Time;

use super::drive::World;
use super::hosts::{Arrival, Hosts, Left, PORTS, Place};
use super::plan::Plan;
use crate::report::Failure;
use crate::scenario::Draws;
use frames::{Digest, FETCHED, Known, REPORTS};

/// Objects of each cache, some of which it never has.
const OBJECTS: usize = 14;
const NEVER: usize = 3;
/// An object that was stored stays for so long at least.
const STAYS: Duration = Duration::from_millis(40);
/// A digest is fetched so often, in microseconds.
const FETCHED_EVERY: (u64, u64) = (15_000, 60_000);
/// After links are good, and again when all know everything, load goes on for so long.
const IN_CALM: Duration = Duration::from_millis(100);
/// What routers deal packets by: of those who ask, of reports, and of nothing else.
const ASKERS: u64 = 6;
const REPORTERS: u64 = 4;

/// A write: where and when.
type Write = (Place, Time);

/// An object of the cache that reports.
struct Object {
    number: u32,
    is_stored: bool,
    /// What the filter has of it cannot be said any more: a write died with its host, or was made without knowing the one before.
    is_unsure: bool,
    writes: Vec<Write>,
    /// Counts what may change an answer.
    changes: u64,
    /// The report under way: what it says, where it came, and whether all that came before was known there.
    reported: Option<(bool, Option<(Place, bool)>)>,
}

/// A digest that was fetched.
struct Version {
    /// Places of objects in [`Cached::pool`].
    holds: BTreeSet<usize>,
    /// Where each of its frames came; the head's last.
    places: Vec<Place>,
    /// Since when all of it is in the state.
    written: Option<Time>,
    /// Anyone who wrote it knew all earlier ones, so that it is over them everywhere.
    is_over_all: bool,
    /// Its writer died before all of it was known to somebody else.
    is_unsure: bool,
}

/// What an answer may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expected {
    Is(bool),
    /// Either, but an answer.
    Answer,
    /// Goes on to the cache: nobody knows its digest.
    PassedOn,
    Anything,
}

struct Question {
    cache: usize,
    object: usize,
    asked: Option<(Place, Expected, u64)>,
}

/// Two caches, and those who ask.
pub(crate) struct Cached {
    draws: Draws,
    hosts: usize,
    victim: Option<usize>,
    objects: Vec<Object>,
    /// Numbers of the fetched cache's objects.
    pool: Vec<u32>,
    versions: Vec<Version>,
    fetches_at: Time,
    questions: BTreeMap<u32, Question>,
    next_question: u32,
    until: Option<Time>,
    /// All that was written by then is known to all, unless it is lost.
    agreed: Option<Time>,
    is_called: bool,
    now: Time,
    judged: BTreeMap<&'static str, u64>,
    /// Reports by what they must have done: stored, let go, and let go what was not there.
    reports: [u64; 3],
}

impl Cached {
    pub(crate) fn new(plan: &Plan) -> Self {
        let object = |number| Object {
            number,
            is_stored: false,
            is_unsure: false,
            writes: Vec::new(),
            changes: 0,
            reported: None,
        };
        Self {
            draws: super::drive::draws(plan),
            hosts: plan.hosts,
            victim: plan.death.as_ref().map(|death| death.victim),
            objects: frames::apart(REPORTS, OBJECTS)
                .into_iter()
                .map(object)
                .collect(),
            pool: frames::apart(FETCHED, OBJECTS),
            versions: Vec::new(),
            fetches_at: Time::ZERO,
            questions: BTreeMap::new(),
            next_question: 0,
            until: None,
            agreed: None,
            is_called: false,
            now: Time::ZERO,
            judged: BTreeMap::new(),
            reports: [0; 3],
        }
    }

    fn judged(&mut self, what: &'static str) {
        *self.judged.entry(what).or_default() += 1;
    }

    // --- what comes

    fn asks(&mut self, cache: usize, object: usize, host: Option<usize>) -> Arrival {
        let id = self.next_question;
        self.next_question += 1;
        let question = Question {
            cache,
            object,
            asked: None,
        };
        self.questions.insert(id, question);
        let number = match cache {
            FETCHED => self.pool[object],
            _ => self.objects[object].number,
        };
        let asker = self.draws.within(0, ASKERS - 1);
        Arrival {
            port: PORTS[0],
            path: asker,
            host,
            frame: frames::query(id, asker as u8, cache, number),
        }
    }

    fn reports(&mut self, object: usize, stores: bool) -> Arrival {
        let reporter = object as u64 % REPORTERS;
        let one = &mut self.objects[object];
        one.reported = Some((stores, None));
        one.changes += 1;
        Arrival {
            port: PORTS[1],
            path: ASKERS + reporter,
            host: None,
            frame: frames::report(reporter as u16, one.number, stores),
        }
    }

    /// The frames by which a host writes the digest that it fetched.
    fn fetches(&mut self, out: &mut Vec<Arrival>) {
        let holds: BTreeSet<usize> = (0..OBJECTS - NEVER)
            .filter(|_| self.draws.percent(50))
            .collect();
        let digest = self.digest(&holds);
        self.versions.push(Version {
            holds,
            places: Vec::new(),
            written: None,
            is_over_all: true,
            is_unsure: false,
        });
        // The victim fetches, too, while nobody knows that it is one.
        let host = self.draws.within(0, self.hosts as u64 - 1) as usize;
        let host = match self.victim {
            Some(victim) if victim == host && self.agreed.is_some() => (host + 1) % self.hosts,
            _ => host,
        };
        let control = frames::reported(&digest, self.versions.len() as u32);
        out.extend(control.into_iter().map(|frame| Arrival {
            port: CONTROL,
            path: 0,
            host: Some(host),
            frame,
        }));
    }

    fn digest(&self, holds: &BTreeSet<usize>) -> Digest {
        frames::digest(holds.iter().map(|&object| self.pool[object]))
    }

    fn object(&self, number: u32) -> Option<usize> {
        let mut objects = self.objects.iter();
        objects.position(|object| object.number == number)
    }

    // --- who knows what

    fn knows(&self, at: Place, (of, since): Write, hosts: &Hosts<CacheDigests>) -> bool {
        self.agreed.is_some_and(|agreed| since < agreed) || hosts.knows(at, of, since)
    }

    /// Whether an instance surely knows all reports of an object: they are added up and reported within a while.
    fn knows_reports(&self, at: Place, object: usize, hosts: &Hosts<CacheDigests>) -> bool {
        let later = hosts.reported_within();
        let mut writes = self.objects[object].writes.iter();
        writes.all(|&(of, since)| {
            self.agreed.is_some_and(|agreed| since < agreed) || hosts.knows(at, of, since + later)
        })
    }

    /// Whether an instance surely has all of a digest, if anybody has.
    fn has_version(&self, at: Place, version: &Version, hosts: &Hosts<CacheDigests>) -> bool {
        version.written.is_some_and(|written| {
            let mut places = version.places.iter();
            places.all(|&of| self.knows(at, (of, written), hosts))
        })
    }

    fn expected(&self, question: &Question, at: Place, hosts: &Hosts<CacheDigests>) -> Expected {
        if question.cache == REPORTS {
            let object = &self.objects[question.object];
            let is_known = self.knows_reports(at, question.object, hosts);
            return match object.is_unsure || object.reported.is_some() || !is_known {
                true => Expected::Answer,
                false => Expected::Is(object.is_stored),
            };
        }
        if self.versions.is_empty() {
            return Expected::PassedOn;
        }
        let sure = |version: &Version| !version.is_unsure && self.has_version(at, version, hosts);
        if !self.versions.iter().any(sure) {
            return Expected::Anything;
        }
        // What it has is of the last one that is surely over all before it, or of any that came since.
        let is_base = |version: &Version| version.is_over_all && sure(version);
        let base = self.versions.iter().rposition(is_base).unwrap_or(0);
        let holds = |version: &Version| version.holds.contains(&question.object);
        let last = self.versions.last().is_some_and(holds);
        let all_say_so = self.versions[base..]
            .iter()
            .all(|version| holds(version) == last);
        match all_say_so {
            true => Expected::Is(last),
            false => Expected::Answer,
        }
    }

    /// What must not have changed for an expectation to hold still.
    fn changes(&self, question: &Question) -> u64 {
        match question.cache {
            REPORTS => self.objects[question.object].changes,
            _ => self.versions.len() as u64,
        }
    }

    // --- what leaves

    fn answered(&mut self, id: u32, answer: Option<bool>, at: Place) -> Result<(), Failure> {
        let Some(question) = self.questions.remove(&id) else {
            return Err(Failure::new(
                "each query is answered once, or goes on",
                format!("{at:?} had {answer:?} for {id}"),
            ));
        };
        let Some((asked_at, expected, changes)) = question.asked else {
            return Ok(());
        };
        let expected = match (expected, changes == self.changes(&question)) {
            (expected, true) => expected,
            (Expected::Is(_) | Expected::Answer, false) => Expected::Answer,
            (_, false) => Expected::Anything,
        };
        let (is_right, what) = match (expected, answer) {
            (Expected::Is(true), answer) => (answer == Some(true), "hits"),
            (Expected::Is(false), answer) => (answer == Some(false), "misses"),
            (Expected::Answer, answer) => (answer.is_some(), "answers of either kind"),
            (Expected::PassedOn, answer) => (answer.is_none(), "queries of unknown digests"),
            (Expected::Anything, _) => (true, "queries within the lag"),
        };
        if !is_right || asked_at != at {
            return Err(Failure::new(
                "queries are answered as by one box",
                format!(
                    "{at:?}, asked at {asked_at:?} for object {} of cache {}, had {answer:?} in place of {expected:?}",
                    question.object, question.cache
                ),
            ));
        }
        self.judged(what);
        Ok(())
    }

    /// A report was taken note of, and goes on.
    fn was_reported(&mut self, number: u32) {
        let now = self.now;
        let Some(object) = self.object(number) else {
            return;
        };
        let one = &mut self.objects[object];
        one.changes += 1;
        let Some((stores, Some((at, knew)))) = one.reported.take() else {
            return;
        };
        let was_stored = core::mem::replace(&mut one.is_stored, stores);
        match (stores, was_stored, knew) {
            (true, ..) => self.reports[0] += 1,
            (false, true, true) => self.reports[1] += 1,
            (false, false, true) => {
                // It must have taken nothing away.
                self.reports[2] += u64::from(!one.is_unsure);
                return;
            }
            (false, _, false) => one.is_unsure = true,
        }
        one.writes.push((at, now));
    }

    /// The digest that was reported last is all in the state.
    fn look_for_the_last(&mut self, hosts: &Hosts<CacheDigests>) {
        let fetched = self.versions.len() as u32;
        let Some(last) = self.versions.last() else {
            return;
        };
        let (header, mask) = self.digest(&last.holds);
        let frames = mask.chunks(FRAME_BLOCKS_MAX * BLOCK_BYTES).count() + 1;
        if last.written.is_some() || last.places.len() < frames {
            return;
        }
        let is_written = last.places.iter().enumerate().all(|(number, &place)| {
            let mut instances = hosts.instances();
            let Some((_, instance)) = instances.find(|(at, _)| *at == place) else {
                return false;
            };
            let state = instance.state();
            if number + 1 == frames {
                let head = state.heads.get(&(FETCHED as u16));
                return matches!(head, Ok(Some(head)) if head.value.fetched == fetched);
            }
            let first = number * FRAME_BLOCKS_MAX;
            let block = state
                .masks
                .get(&((FETCHED as u16, header.mask_bytes), first as u32));
            let reported = mask.chunks(BLOCK_BYTES).nth(first).unwrap_or_default();
            matches!(block, Ok(Some(block)) if block.value.0.starts_with(reported))
        });
        if is_written && let Some(last) = self.versions.last_mut() {
            last.written = Some(self.now);
        }
    }
}

impl World for Cached {
    type Function = CacheDigests;

    fn function(&mut self) -> CacheDigests {
        CacheDigests::new(frames::configuration())
    }

    fn due(&mut self, now: Time, out: &mut Vec<Arrival>) {
        self.now = now;
        if self.is_called || self.until.is_some_and(|until| now >= until) {
            return;
        }
        if self.draws.percent(25) {
            let object = self.draws.within(0, OBJECTS as u64 - 1) as usize;
            let one = &self.objects[object];
            let rested = one.writes.last().is_none_or(|last| now > last.1 + STAYS);
            // Now and then one is let go that is not there.
            let lies = object >= OBJECTS - NEVER || self.draws.percent(20);
            let stores = !one.is_stored && !lies;
            if one.reported.is_none() && rested {
                out.push(self.reports(object, stores));
            }
        }
        let is_last_in = self
            .versions
            .last()
            .is_none_or(|last| last.written.is_some() || last.is_unsure);
        if now >= self.fetches_at && is_last_in {
            if self.fetches_at > Time::ZERO {
                self.fetches(out);
            }
            let (least, most) = FETCHED_EVERY;
            self.fetches_at = now + self.draws.micros(least, most);
        }
        for _ in 0..self.draws.within(0, 2) {
            let cache = self.draws.one_of(&[FETCHED, REPORTS]);
            let object = self.draws.within(0, OBJECTS as u64 - 1) as usize;
            out.push(self.asks(cache, object, None));
        }
    }

    fn arrives(&mut self, arrival: &Arrival, at: Place, hosts: &Hosts<CacheDigests>) {
        if arrival.port == CONTROL {
            let count = self.versions.len() - 1;
            let (before, last) = self.versions.split_at(count);
            let knows_all = before.iter().all(|version| match version.is_unsure {
                // It is known to all, or lost.
                true => self.agreed.is_some(),
                false => self.has_version(at, version, hosts),
            });
            let is_over_all = last.iter().all(|last| last.is_over_all) && knows_all;
            if let Some(last) = self.versions.last_mut() {
                last.is_over_all = is_over_all;
                last.places.push(at);
            }
            return;
        }
        match Known::read(&arrival.frame) {
            Some(Known::Query(id)) => {
                let Some(question) = self.questions.get(&id) else {
                    return;
                };
                let expected = self.expected(question, at, hosts);
                let changes = self.changes(question);
                if let Some(question) = self.questions.get_mut(&id) {
                    question.asked = Some((at, expected, changes));
                }
            }
            Some(Known::Report(number)) => {
                let Some(object) = self.object(number) else {
                    return;
                };
                let knew = self.knows_reports(at, object, hosts);
                if let Some((_, came)) = &mut self.objects[object].reported {
                    *came = Some((at, knew));
                }
            }
            Some(Known::Answer(..)) | None => {}
        }
    }

    fn taken(&mut self, arrival: &Arrival, _: Place, taken: bool) {
        if taken {
            return;
        }
        if arrival.port == CONTROL {
            // A part of it may have been taken.
            if let Some(last) = self.versions.last_mut() {
                last.is_unsure = true;
            }
            return;
        }
        match Known::read(&arrival.frame) {
            Some(Known::Query(id)) => {
                self.questions.remove(&id);
            }
            Some(Known::Report(number)) => {
                if let Some(object) = self.object(number) {
                    self.objects[object].reported = None;
                }
            }
            Some(Known::Answer(..)) | None => {}
        }
    }

    fn leaves(&mut self, left: Left, _: &Hosts<CacheDigests>) -> Result<(), Failure> {
        match Known::read(&left.frame) {
            Some(Known::Query(id)) => self.answered(id, None, left.at),
            Some(Known::Answer(id, hit)) => self.answered(id, Some(hit), left.at),
            Some(Known::Report(number)) => {
                self.was_reported(number);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn looks(&mut self, hosts: &Hosts<CacheDigests>) -> Result<(), Failure> {
        self.look_for_the_last(hosts);
        Ok(())
    }

    fn died(&mut self, victim: usize, reported: Time, hosts: &Hosts<CacheDigests>) {
        let later = hosts.reported_within();
        for object in &mut self.objects {
            let mut writes = object.writes.iter();
            if writes.any(|(at, since)| at.host == victim && *since + later > reported) {
                object.is_unsure = true;
            }
            if matches!(object.reported, Some((_, Some((at, _)))) if at.host == victim) {
                object.reported = None;
            }
            object.changes += 1;
        }
        for version in &mut self.versions {
            let is_of_victim = version.places.iter().any(|at| at.host == victim);
            version.is_unsure |= is_of_victim && version.written.is_none_or(|at| at > reported);
        }
        self.questions
            .retain(|_, question| question.asked.is_none_or(|asked| asked.0.host != victim));
    }

    fn calms(&mut self, now: Time) {
        self.until = Some(now + IN_CALM);
    }

    fn begins_again(&mut self, now: Time) -> bool {
        self.agreed = Some(now);
        self.until = Some(now + IN_CALM);
        true
    }

    fn unfinished(&self) -> Option<String> {
        let until = self.until?;
        let last = self.versions.last();
        if self.now < until {
            Some(format!("there is load until {until}"))
        } else if let Some(id) = self.questions.keys().next() {
            Some(format!("query {id} neither came back nor went on"))
        } else if last.is_some_and(|last| last.written.is_none() && !last.is_unsure) {
            Some("the last digest is not in the state".to_owned())
        } else {
            let mut objects = self.objects.iter();
            let reported = objects.find(|object| object.reported.is_some())?;
            Some(format!("a report of {} did not go on", reported.number))
        }
    }

    fn settles(&mut self, hosts: &Hosts<CacheDigests>) -> Result<(), Failure> {
        self.agreed = Some(hosts.now());
        Ok(())
    }

    fn roll_call(&mut self, host: usize, _: usize, _: Time, out: &mut Vec<Arrival>) {
        self.is_called = true;
        for cache in [FETCHED, REPORTS] {
            for object in 0..OBJECTS {
                out.push(self.asks(cache, object, Some(host)));
            }
        }
    }

    fn called(&mut self, host: usize) -> Result<(), Failure> {
        if let Some(id) = self.questions.keys().next() {
            return Err(Failure::new(
                "each query is answered once, or goes on",
                format!("m{host} was asked {id}"),
            ));
        }
        self.judged("roll calls");
        Ok(())
    }

    fn judge(&mut self, hosts: &Hosts<CacheDigests>) -> Result<(), Failure> {
        let last = self
            .versions
            .last()
            .filter(|last| last.is_over_all && !last.is_unsure);
        let digest = last.map(|last| self.digest(&last.holds));
        let is_sure = |object: &Object| !object.is_unsure;
        let counts_hold = self.victim.is_none() && self.objects.iter().all(is_sure);
        for (at, instance) in hosts.instances() {
            let tell = |question: u32| {
                let (mut bytes, mut cursor) = (Vec::new(), Some(0));
                while let Some(from) = cursor {
                    let state = instance.state();
                    cursor = hosts
                        .function()
                        .report(state, question, (from, 8), &mut bytes);
                }
                bytes
            };
            let wrong = |what: String| Err(Failure::new("what is reported is what is known", what));
            if let Some(digest) = &digest
                && read_mask(&tell(FETCHED as u32 + 1)).as_ref() != Some(digest)
            {
                return wrong(format!(
                    "{at:?} serves another digest than was fetched last"
                ));
            }
            let directory = read_directory(&tell(0));
            let Some((_, counts)) = directory.ok().and_then(|all| all.get(REPORTS).copied()) else {
                return wrong(format!("{at:?} tells no directory"));
            };
            let of = |counted: Counted| counts[counted as usize];
            let reported = [Counted::Stored, Counted::Released, Counted::NotStored].map(of);
            if counts_hold && reported != self.reports {
                return wrong(format!("{at:?} counted {reported:?} of {:?}", self.reports));
            }
        }
        *self.judged.entry("digests served").or_default() += u64::from(digest.is_some());
        *self.judged.entry("counted reports").or_default() += u64::from(counts_hold);
        Ok(())
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = self.judged.clone();
        counts.insert("reports of what was not there", self.reports[2]);
        counts
    }
}
