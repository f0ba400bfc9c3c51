//! Objects that are changed between local and replicated while packets flow: when instances log their operations, and when they write
//! again all that they hold.
//!
//! 1. An object is shared as long as any member of the epoch has it replicated by its configuration ([`Placements`]). So hosts are
//!    reloaded one after another, and none of them has an operation that it keeps for itself while others share theirs: from the first reload that
//!    names `replicated` to the last that names `local`. A member that has announced nothing leaves it as it is.
//! 2. What others write is applied in either case.
//! 3. While an object is not shared here, what is written here has no number, and what ends is forgotten. So when all instances of this
//!    host have begun to share it, the host *begins*: each member that shares it, this one included, writes all that it holds of it again.
//!    What each then has is the join of what all had, in whatever order it arrives: what a member lacked, since it ended it while
//!    it was local, comes back; what another lacks comes to it.
//! 4. All members count how often each began, and up to which count they have answered ([`Placements::covered`]). Once all have answered
//!    all, digests are compared again.
//! 5. A member that dies, or a newcomer that is given a snapshot by a host with a local object, is another reason to begin: what was
//!    handed on by the snapshot of such a host lacks the object.
//! 6. A table that holds more than its share does not begin to be shared; it is asked again each second.

use std::collections::BTreeMap;
use std::time::Duration;

use asterism_placement::replicated::{Placements, Standing};
use asterism_placement::{Incarnation, MemberId, Time};

use super::StateChannel;
use crate::exchange::Down;
use crate::host::Placed;
use crate::mutant::{self, Mutant};

/// How often instances are asked again to share what they would not.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// What a member's count is multiplied by, once more than the member's number.
const WEIGHT: u32 = 2_654_435_761;

/// How often members began to share objects, by their incarnation.
type Counts = BTreeMap<(MemberId, Incarnation), u32>;

/// A member of the epoch, this one excepted, and where it has its objects, if it announced that.
type Other = (MemberId, Option<Incarnation>, Option<Placements>);

/// What one instance answered.
#[derive(Clone, Copy, Debug)]
struct InstanceAnswer {
    share: u32,
    objects: u64,
    announced: u32,
}

/// Objects that are changed between local and replicated: sets of them have a bit for each.
#[derive(Debug)]
pub(super) struct Sharing {
    placed: Placed,
    own: (MemberId, Incarnation),
    /// What instances were asked to share last, under which number, and when.
    requested: u64,
    share: u32,
    requested_at: Time,
    lanes: Vec<InstanceAnswer>,
    /// What all instances share.
    shared: u64,
    /// What instances were asked since then to share no longer: they did not for a while, though they may do so again.
    interrupted: u64,
    /// What this host began to share last, and ever.
    last: u64,
    ever: u64,
    /// How often each member began, this one included, as far as this host knows.
    known: Counts,
    /// The same, as far as it has answered.
    covered: Counts,
    /// What this host began to share and has not begun to write again.
    begun: u64,
    /// The number of the last announcement, and what is written again, while that goes on.
    announce: u32,
    announcing: Option<u64>,
    /// Placements of the members of the epoch as they were last looked at.
    others: Vec<Other>,
    version: Option<u64>,
    /// Something changed here.
    is_changed: bool,
    /// A newcomer has not seen yet whether those who share an object did when they sent it snapshots.
    judges_snapshots: bool,
    announced: Option<Placements>,
    is_settled: bool,
}

/// Objects that may be changed between local and replicated, for people: sets of them have a bit for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedObjects {
    /// Those that there are.
    pub movable: u64,
    /// Those that are replicated by this host's configuration.
    pub replicated: u64,
    /// Those whose operations all instances of this host log.
    pub shared: u64,
    /// Those that it is to share, and does not: some instance holds more than its share of the entries.
    pub waiting: u64,
    /// Those that are shared, and that some member has not written again yet since another began to share them: they are not compared.
    pub unsettled: u64,
    /// All members have written again what they held when others began to share it.
    pub is_settled: bool,
    /// The other members of the epoch, and which objects are replicated by their configuration, if they announced that.
    pub others: Vec<(MemberId, Option<u64>)>,
}

impl Sharing {
    fn new(placed: Placed, own: (MemberId, Incarnation), lanes: usize, now: Time) -> Self {
        let objects = placed.replicated & placed.movable;
        Self {
            placed,
            own,
            requested: objects,
            share: 0,
            requested_at: now,
            lanes: vec![
                InstanceAnswer {
                    share: 0,
                    objects,
                    announced: 0
                };
                lanes
            ],
            shared: objects,
            interrupted: 0,
            last: 0,
            ever: 0,
            known: Counts::new(),
            covered: Counts::new(),
            begun: 0,
            announce: 0,
            announcing: None,
            others: Vec::new(),
            version: None,
            is_changed: true,
            judges_snapshots: false,
            announced: None,
            is_settled: true,
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        (self.requested & !self.shared != 0).then_some(self.requested_at + ASK_AGAIN)
    }

    /// What is to be shared here.
    fn wanted(&self) -> u64 {
        let wanted = |other: &Other| other.2.map(|placements| placements.wanted);
        // A silent member may have any of them replicated.
        let by_others = self.others.iter().fold(0, |all, other| {
            all | wanted(other).unwrap_or(self.requested)
        });
        let by_others = match mutant::active(Mutant::LocalByOwnWordAlone) {
            true => 0,
            false => by_others,
        };
        (self.placed.replicated | by_others) & self.placed.movable
    }

    /// Instances are asked to share these objects, and no others; the number of that.
    fn request(&mut self, objects: u64, now: Time) -> u32 {
        self.share = self.share.wrapping_add(1);
        self.interrupted |= self.shared & !objects;
        (self.requested, self.requested_at) = (objects, now);
        self.share
    }

    /// What all instances share by now; this host begins to share what is new of it.
    fn take_shared(&mut self) {
        let has_answered = |lane: &InstanceAnswer| lane.share == self.share;
        if !self.lanes.iter().all(has_answered) {
            return;
        }
        let all = self
            .lanes
            .iter()
            .fold(u64::MAX, |all, lane| all & lane.objects);
        let begun = all & !(self.shared & !self.interrupted);
        self.interrupted = 0;
        self.shared = all;
        self.begin(begun);
    }

    /// Has all members write again what they hold of these objects, this one included.
    fn begin(&mut self, objects: u64) {
        if objects != 0 {
            *self.known.entry(self.own).or_default() += 1;
            (self.last, self.ever) = (objects, self.ever | objects);
            self.begun |= objects;
            self.is_changed = true;
        }
    }

    fn take_begun(&mut self, is_ready: bool) -> u64 {
        match is_ready || mutant::active(Mutant::NewcomerBeginsTooEarly) {
            true => core::mem::take(&mut self.begun),
            false => 0,
        }
    }

    /// What others began to share since they were last looked at, and what this host began. A newcomer holds nothing yet that others have
    /// not, and may not write: what it began itself, whose digests are made with it, it writes again once it has joined.
    fn newly_begun(&mut self, is_ready: bool) -> u64 {
        let mut objects = self.take_begun(is_ready);
        for (member, incarnation, placements) in &self.others {
            let (Some(incarnation), Some(placements)) = (incarnation, placements) else {
                continue;
            };
            let before = self.known.entry((*member, *incarnation)).or_default();
            let missed = placements.begun.wrapping_sub(*before);
            if missed != 0 && !mutant::active(Mutant::BeginningUnanswered) {
                objects |= if missed == 1 {
                    placements.last
                } else {
                    placements.ever
                };
            }
            *before = placements.begun;
        }
        if is_ready { objects & self.shared } else { 0 }
    }

    /// One number for the counts of the members of the epoch: equal, but for chance, if all are.
    fn sum(&self, counts: &Counts) -> u32 {
        let others = self.others.iter();
        let members = others.filter_map(|&(member, incarnation, _)| Some((member, incarnation?)));
        let counts = members.chain([self.own]).filter_map(|member| {
            let count = counts.get(&member)?;
            let weight = WEIGHT.wrapping_pow(u32::from(member.0.0) + 1);
            Some(count.wrapping_mul(weight))
        });
        counts.fold(0, u32::wrapping_add)
    }

    /// Objects that are not compared with others now.
    fn excluded(&self) -> u64 {
        let known = || self.others.iter().filter_map(|other| other.2);
        let changed = known().fold(self.ever, |all, placements| all | placements.ever);
        let unsettled = match self.is_settled || mutant::active(Mutant::ComparedBeforeAnswered) {
            true => 0,
            false => changed,
        };
        let shared = self.shared & !self.interrupted;
        let by_all = known().fold(shared, |all, placements| all & placements.shared);
        (unsettled | !by_all) & self.placed.movable
    }

    fn placements(&self) -> Placements {
        Placements {
            wanted: self.placed.replicated,
            shared: self.shared,
            last: self.last,
            ever: self.ever,
            begun: self.known.get(&self.own).copied().unwrap_or_default(),
            covered: self.sum(&self.covered),
        }
    }

    /// Whether all that any member began was answered by all.
    fn settles(&self) -> bool {
        let all = self.sum(&self.known);
        let has_answered =
            |other: &Other| other.2.is_none_or(|placements| placements.covered == all);
        self.announcing.is_none()
            && self.sum(&self.covered) == all
            && self.others.iter().all(has_answered)
    }
}

impl StateChannel {
    /// Where objects are by the configuration that the host begins with.
    pub(crate) fn place(&mut self, placed: Placed, now: Time) {
        if placed.movable != 0 {
            let config = self.protocols.replicator.config();
            let own = (config.member, config.incarnation);
            let joins = config.joins;
            let mut sharing = Sharing::new(placed, own, self.lanes.len(), now);
            sharing.judges_snapshots = joins;
            self.sharing = Some(Box::new(sharing));
        }
    }

    /// From now on these objects are replicated by the host's configuration, and the rest of those that may be changed is local.
    pub fn set_replicated(&mut self, objects: u64) {
        if let Some(sharing) = &mut self.sharing {
            sharing.placed.replicated = objects & sharing.placed.movable;
            sharing.is_changed = true;
        }
    }

    /// Objects that may be changed between local and replicated; `None` if there are none.
    pub fn shared_objects(&self) -> Option<SharedObjects> {
        let sharing = self.sharing.as_ref()?;
        Some(SharedObjects {
            movable: sharing.placed.movable,
            replicated: sharing.placed.replicated,
            shared: sharing.shared,
            waiting: sharing.requested & !sharing.shared,
            unsettled: sharing.excluded() & sharing.shared,
            is_settled: sharing.is_settled,
            others: sharing
                .others
                .iter()
                .map(|(member, _, placements)| (*member, placements.map(|known| known.wanted)))
                .collect(),
        })
    }

    /// An instance shares these objects.
    pub(super) fn note_shared(&mut self, lane: usize, number: u32, objects: u64) {
        if let Some(sharing) = &mut self.sharing {
            let lane = &mut sharing.lanes[lane];
            (lane.share, lane.objects) = (number, objects);
            sharing.is_changed = true;
        }
    }

    /// An instance has written again what it holds.
    pub(super) fn note_announced(&mut self, lane: usize, number: u32) {
        if let Some(sharing) = &mut self.sharing {
            sharing.lanes[lane].announced = number;
            sharing.is_changed = true;
        }
    }

    /// This host has joined.
    pub(super) fn note_ready(&mut self) {
        if let Some(sharing) = &mut self.sharing {
            sharing.is_changed = true;
        }
    }

    /// Takes up what this host, its instances or other members announced.
    pub(super) fn share_objects(&mut self, now: Time) {
        let Some(mut sharing) = self.sharing.take() else {
            return;
        };
        let version = Some(self.protocols.replicator.placements_version());
        let is_due = sharing.poll_timeout().is_some_and(|at| at <= now);
        if is_due || core::mem::take(&mut sharing.is_changed) || sharing.version != version {
            if sharing.version != version {
                self.update_others(&mut sharing);
                sharing.version = version;
            }
            self.share_now(&mut sharing, now, is_due);
        }
        self.sharing = Some(sharing);
    }

    /// Takes in the members of the epoch, and what each announces.
    fn update_others(&self, sharing: &mut Sharing) {
        let members = self.protocols.replicator.progress().members().iter();
        let own = sharing.own.0;
        let others = members.filter(|one| one.member != own && one.standing != Standing::Out);
        let others = others.map(|one| {
            let placements = self.protocols.replicator.placements_of(one.member);
            (one.member, one.incarnation, placements)
        });
        let before = core::mem::replace(&mut sharing.others, others.collect());
        // Snapshots of one that has gone may have handed on what another one had written, without what is local there.
        let has_gone = |&&(member, incarnation, _): &&Other| {
            let mut now = sharing.others.iter();
            incarnation.is_some()
                && !now.any(|&(name, named, _)| (name, named) == (member, incarnation))
        };
        let gone = before.iter().filter(has_gone).filter_map(|other| other.2);
        let lacking = gone.fold(0, |all, placements| {
            all | sharing.shared & !placements.shared
        });
        sharing.begin(lacking);
        let living: Vec<_> = sharing
            .others
            .iter()
            .map(|&(member, incarnation, _)| (member, incarnation))
            .collect();
        let own = sharing.own;
        let stays = |&(member, incarnation): &(MemberId, Incarnation)| {
            (member, incarnation) == own || living.contains(&(member, Some(incarnation)))
        };
        sharing.known.retain(|member, _| stays(member));
        sharing.covered.retain(|member, _| stays(member));
    }

    fn share_now(&mut self, sharing: &mut Sharing, now: Time, is_due: bool) {
        let wanted = sharing.wanted();
        if wanted != sharing.requested || is_due {
            let number = sharing.request(wanted, now);
            self.outlet.push(&Down::Share {
                number,
                movable: sharing.placed.movable,
                shared: wanted,
            });
        }
        sharing.take_shared();
        let is_ready = self.protocols.replicator.is_ready();
        let have_announced = sharing.others.iter().all(|other| other.2.is_some());
        if is_ready && have_announced && core::mem::take(&mut sharing.judges_snapshots) {
            let by_all = sharing.others.iter().filter_map(|other| other.2);
            let by_all = by_all.fold(u64::MAX, |all, placements| all & placements.shared);
            sharing.begin(sharing.shared & !by_all);
        }
        let objects = sharing.newly_begun(is_ready);
        let answered = sharing
            .lanes
            .iter()
            .all(|lane| lane.announced == sharing.announce);
        if objects != 0 {
            let objects = objects | sharing.announcing.unwrap_or_default();
            sharing.announce = sharing.announce.wrapping_add(1);
            self.outlet.push(&Down::Announce {
                number: sharing.announce,
                objects,
            });
            sharing.announcing = Some(objects);
        } else if sharing.begun == 0 && (sharing.announcing.is_none() || answered) {
            // What was begun of objects that are local here needs no answer.
            sharing.announcing = None;
            sharing.covered.clone_from(&sharing.known);
        }
        sharing.is_settled = sharing.settles();
        let placements = sharing.placements();
        if sharing.announced != Some(placements) {
            sharing.announced = Some(placements);
            self.protocols
                .replicator
                .announce_placements(now, placements);
        }
        self.protocols.auditor.exclude(now, sharing.excluded());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host of two instances with two objects, which are replicated.
    fn sharing() -> Sharing {
        let placed = Placed {
            movable: 3,
            replicated: 3,
        };
        Sharing::new(placed, (MemberId(1), Incarnation(1)), 2, Time(0))
    }

    fn answer(sharing: &mut Sharing, lane: usize, share: u32, objects: u64) {
        sharing.lanes[lane].share = share;
        sharing.lanes[lane].objects = objects;
        sharing.take_shared();
    }

    #[test]
    fn what_was_local_for_a_moment_is_written_again_though_nobody_saw_it_local() {
        let mut sharing = sharing();
        let local = sharing.request(1, Time(0));
        answer(&mut sharing, 0, local, 1);
        let shared = sharing.request(3, Time(0));
        answer(&mut sharing, 0, shared, 3);
        assert_eq!((sharing.shared, sharing.begun), (3, 0), "one is silent yet");
        answer(&mut sharing, 1, shared, 3);
        assert_eq!((sharing.shared, sharing.begun, sharing.last), (3, 2, 2));
        let again = sharing.request(3, Time(0));
        answer(&mut sharing, 0, again, 3);
        answer(&mut sharing, 1, again, 3);
        assert_eq!(sharing.known[&sharing.own], 1, "once");
    }

    #[test]
    fn what_is_being_written_again_is_not_compared() {
        let mut sharing = sharing();
        for objects in [1, 3] {
            let number = sharing.request(objects, Time(0));
            answer(&mut sharing, 0, number, objects);
            answer(&mut sharing, 1, number, objects);
            sharing.is_settled = sharing.settles();
            assert_eq!(sharing.excluded(), 2, "local, and then not answered");
        }
        assert_eq!(sharing.newly_begun(false), 0, "a newcomer waits");
        assert_eq!(sharing.newly_begun(true), 2);
        sharing.announcing = Some(2);
        sharing.is_settled = sharing.settles();
        assert_eq!(sharing.excluded(), 2);
        sharing.announcing = None;
        sharing.covered.clone_from(&sharing.known);
        sharing.is_settled = sharing.settles();
        assert_eq!(sharing.excluded(), 0);
    }

    /// Only in a build with `--cfg asterism_mutants`.
    #[cfg(asterism_mutants)]
    #[test]
    fn the_planted_bug_is_found() {
        mutant::select(Some(Mutant::ComparedBeforeAnswered));
        let found = std::panic::catch_unwind(what_is_being_written_again_is_not_compared);
        mutant::select(None);
        assert!(found.is_err());
    }
}
