//! When a member may grant from partitions that were another's: what one instance knows of who could still grant from them.
//!
//! An epoch says who holds a partition ([`BlockAssignment`]). Anyone who is given one grants from it once none of those who held it before can,
//! and all that they granted is known here:
//!
//! - One that lives puts on record, in its own stream, that it has the epoch in force; what it granted before comes before
//!   that record ([`Notes`]).
//! - One that has died must be *over*: its incarnation closed (all participants have the same of it, and have its end in force), its
//!   process known to have ended or its lease run out, and one idle time passed, in which flows that only it knew went quiet.
//!
//! A host holds its lease as long as so many members answer it that the others are no majority of the places. When it runs out
//! the host grants nothing; one idle time later it handles no packets either, and another idle time later others may have its partitions.

use core::cell::{Cell, Ref, RefCell};
use std::collections::BTreeMap;

use asterism_block_assignment::BlockAssignment;

use crate::branch::{Branch, taken};
use crate::context::Context;
use crate::mutant::{self, Mutant};
use crate::stamp::{OriginName, Stamp};
use crate::tick::Tick;

/// Incarnations that have ended and are remembered at most; of those forgotten it is as if this instance had joined later.
const ENDED_MAX: usize = 256;
/// Members of a cluster, and instances of a host, at most.
const MEMBERS_MAX: usize = 64;
/// By how much clocks of two hosts may differ in speed: one part in so many.
const DRIFT_PARTS: u64 = 64;
/// How long a host still handles packets after another member named a later epoch than its own (microseconds). The time is for
/// an operator who copies the epoch from host to host; no port is granted in it.
const OUTDATED_SERVES_US: u64 = 5_000_000;
/// What is waited besides, for turns that take long.
const DRIFT_LEAST_US: u64 = 1_000_000;

/// An incarnation that ended while this instance knew it.
#[derive(Clone, Copy, Debug)]
struct Ended {
    incarnation: OriginName,
    /// When all participants had the same of it, by this instance's clock.
    closed_us: Option<u64>,
    /// When it became known that its process has ended.
    evident_us: Option<u64>,
}

/// What all pools of one instance share.
#[derive(Debug, Default)]
pub struct Leases {
    epoch: u32,
    assignment: BlockAssignment,
    version: u64,
    ended: Vec<Ended>,
    /// By member, since when its last incarnation is known to have ended.
    fenced_us: BTreeMap<u16, u64>,
    /// Since when those outside the epoch are too few to hold a lease among themselves.
    few_since_us: Option<u64>,
    /// Since when this instance has what the others have: incarnations that ended before it never heard of.
    since_us: u64,
    /// How long a host may grant that nobody answers; zero: as long as it likes.
    lease_us: u64,
}

/// What a context knows of leases.
#[derive(Debug)]
pub(crate) struct Leasing {
    pub(crate) leases: RefCell<Leases>,
    /// Until when this host may grant.
    until_us: Cell<u64>,
    /// Since when this host knows that others have a later epoch in force (microseconds); `u64::MAX`: it does not.
    outdated_us: Cell<u64>,
    /// The longest that an entry of any table lives unused.
    quarantine: Cell<Tick>,
    /// The longest that an entry lives unused that has an item of a pool which names such entries.
    held: Cell<Tick>,
    /// Pools that do not name the entries that have their items: any may.
    undeclared_pools: Cell<u32>,
    /// There is a pool whose blocks are leased: without one a host has nothing that others could be given.
    leases_any: Cell<bool>,
}

/// How long an entry may live unused, with the grace that a table adds; zero of one that never ends by itself.
fn outlasts(idle: Tick) -> Tick {
    match idle {
        0 => 0,
        idle => idle.saturating_add(idle / 4).saturating_add(1),
    }
}

impl Default for Leasing {
    fn default() -> Self {
        Self {
            leases: RefCell::default(),
            until_us: Cell::new(u64::MAX),
            outdated_us: Cell::new(u64::MAX),
            quarantine: Cell::new(0),
            held: Cell::new(0),
            undeclared_pools: Cell::new(0),
            leases_any: Cell::new(false),
        }
    }
}

/// Who has which epoch in force, as instances put it on record: the latest for each.
#[derive(Debug, Default)]
pub struct Notes(Vec<Note>);

/// An instance has an epoch in force; what it granted before comes before this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// The incarnation of the instance's host.
    pub origin: OriginName,
    /// Which instance of its host it is.
    pub lane: u8,
    /// Instances of its host.
    pub lanes: u8,
    /// The epoch that it has in force.
    pub epoch: u32,
    /// Where the record stands in its host's stream.
    pub sequence: u64,
}

impl Notes {
    /// Takes a record up, in place of an earlier one of its instance. False if it is none: its member is no member of the cluster, or its
    /// instance none of so many, of 64 at most.
    pub fn take(&mut self, context: &Context, note: Note) -> bool {
        let is_member = context.identity().members.contains(&note.origin.member);
        if !is_member || note.lane >= note.lanes || usize::from(note.lanes) > MEMBERS_MAX {
            return false;
        }
        let of = |known: &&mut Note| {
            (known.origin.member, known.lane) == (note.origin.member, note.lane)
        };
        match self.0.iter_mut().find(of) {
            Some(known) => {
                let later =
                    (note.origin.incarnation, note.epoch) > (known.origin.incarnation, known.epoch);
                taken(match later {
                    true => Branch::RecordReplaced,
                    false => Branch::RecordRepeated,
                });
                if later {
                    *known = note;
                }
            }
            None => {
                taken(Branch::RecordFirst);
                self.0.push(note);
            }
        }
        true
    }

    /// The records, in the order in which their writers were heard first.
    pub fn all(&self) -> &[Note] {
        &self.0
    }

    /// Whether all instances of an incarnation have an epoch in force, and what they wrote before is applied here.
    fn has_in_force(&self, context: &Context, incarnation: OriginName, epoch: u32) -> bool {
        let mut of_incarnation = self
            .0
            .iter()
            .filter(|note| note.origin == incarnation)
            .peekable();
        let Some(lanes) = of_incarnation.peek().map(|note| usize::from(note.lanes)) else {
            taken(Branch::NothingOnRecord);
            return false;
        };
        let done = of_incarnation.filter(|note| {
            note.epoch >= epoch
                && context.origin(incarnation).is_some_and(|origin| {
                    context.has_applied(Stamp {
                        origin,
                        sequence: note.sequence,
                    })
                })
        });
        let (count, least) = match mutant::active(Mutant::ReleasedByOneInstance) {
            true => (done.count(), 1),
            false => (done.count(), lanes),
        };
        taken(match count >= least {
            true => Branch::AllOnRecord,
            false => Branch::SomeOnRecord,
        });
        count >= least
    }
}

impl Leases {
    /// The number of the epoch that was reported last; 0: none was.
    #[inline]
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Which member holds which partitions in that epoch.
    #[inline]
    pub fn assignment(&self) -> &BlockAssignment {
        &self.assignment
    }

    /// A number that changes whenever something did that matters to pools.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Takes up which incarnations an epoch names, and which of those before it does not name any more.
    pub(crate) fn begin(
        &mut self,
        members: &[u16],
        before: &[OriginName],
        living: &[OriginName],
        now_us: u64,
    ) {
        if before.is_empty() {
            // Of incarnations that ended before the first epoch nothing was heard.
            self.since_us = now_us;
        }
        for &incarnation in before
            .iter()
            .filter(|incarnation| !living.contains(incarnation))
        {
            if self.ended.len() >= ENDED_MAX {
                self.ended.remove(0);
                self.since_us = now_us;
            }
            taken(Branch::IncarnationEnded);
            self.ended.push(Ended {
                incarnation,
                closed_us: None,
                evident_us: None,
            });
        }
        debug_assert!(self.ended.len() <= ENDED_MAX);
        let fenced = &self.assignment.fenced;
        self.fenced_us
            .retain(|member, _| fenced.contains_key(member));
        for &member in fenced.keys() {
            self.fenced_us.entry(member).or_insert(now_us);
        }
        for Ended {
            incarnation,
            evident_us,
            ..
        } in &mut self.ended
        {
            let fenced = fenced.get(&incarnation.member);
            // Anyone who names a new incarnation says that the one before has ended.
            let named = living
                .iter()
                .any(|living| living.member == incarnation.member);
            if named || fenced.is_some_and(|&last| last >= incarnation.incarnation) {
                taken(match named {
                    true => Branch::EndProvedByName,
                    false => Branch::EndProvedByFence,
                });
                evident_us.get_or_insert(now_us);
            }
        }
        if self.others_are_few(members, living) {
            taken(Branch::OthersAreFew);
            self.few_since_us.get_or_insert(now_us);
        } else if !mutant::active(Mutant::FewForEver) {
            taken(Branch::OthersAreMany);
            self.few_since_us = None;
        }
        self.version += 1;
    }

    /// Whether an incarnation of a member has ended of which participants may still have something that this instance lacks.
    pub(crate) fn is_closing(&self, member: u16) -> bool {
        let mut ended = self.ended.iter();
        ended.any(|ended| ended.incarnation.member == member && ended.closed_us.is_none())
    }

    /// Whether this incarnation has ended, and participants may still have something of it that this instance lacks.
    pub(crate) fn is_open(&self, incarnation: OriginName) -> bool {
        let mut ended = self.ended.iter();
        ended.any(|ended| ended.incarnation == incarnation && ended.closed_us.is_none())
    }

    /// All participants have the same of an incarnation that ended.
    pub(crate) fn close(&mut self, incarnation: OriginName, now_us: u64) {
        let mut ended = self.ended.iter_mut();
        if let Some(ended) = ended.find(|ended| ended.incarnation == incarnation) {
            taken(Branch::EndedClosed);
            ended.closed_us.get_or_insert(now_us);
        } else {
            taken(Branch::StrangerClosed);
        }
        self.version += 1;
    }

    /// Whether no process of a member that is no more, and no flow that only it knew, can use what it held. Evidence counts from
    /// when it was given: until then the process may have run.
    fn is_over(&self, context: &Context, member: u16) -> bool {
        let idle_us = context.quarantine_us();
        let over = |closed_us: u64, evident_us: Option<u64>| {
            // A host whose lease ran out goes on with the flows that it knows for one idle time; then they go quiet.
            let serves_us = self.lease_us + idle_us;
            let lease_us = serves_us + serves_us / DRIFT_PARTS + DRIFT_LEAST_US;
            let from_us = match (evident_us, self.few_since_us) {
                (Some(at), _) => {
                    taken(Branch::CountedFromProof);
                    closed_us.max(at)
                }
                (None, _) if mutant::active(Mutant::ReassignedUnfenced) => closed_us,
                // Before, they could answer each other.
                (None, Some(few)) if self.lease_us != 0 => {
                    taken(Branch::CountedFromLease);
                    closed_us.max(few) + lease_us
                }
                (None, _) => {
                    taken(Branch::EndUnproved);
                    return false;
                }
            };
            let is_over = context.now_us() >= from_us.saturating_add(idle_us);
            if !is_over {
                taken(Branch::StillTalking);
            }
            is_over
        };
        let living = context.living.borrow();
        let named = living
            .iter()
            .any(|incarnation| incarnation.member == member);
        let mut heard = self
            .ended
            .iter()
            .filter(|ended| ended.incarnation.member == member);
        if heard.clone().next().is_none() && !named {
            taken(Branch::EndedUnseen);
            return over(self.since_us, self.fenced_us.get(&member).copied());
        }
        let is_over = |ended: &Ended| ended.closed_us.is_some_and(|at| over(at, ended.evident_us));
        heard.all(is_over)
    }

    /// Whether those who take no part and may run are too few to hold a lease among themselves.
    fn others_are_few(&self, members: &[u16], living: &[OriginName]) -> bool {
        let outside = members.iter().filter(|&&member| {
            !self.assignment.fenced.contains_key(&member)
                && !living
                    .iter()
                    .any(|incarnation| incarnation.member == member)
        });
        let half = members.len().div_ceil(2);
        outside.count() < half + usize::from(mutant::active(Mutant::HalfIsFew))
    }

    /// Whether this host, if the epoch has dealt it a partition of a member's place, may grant from it.
    pub fn may_grant(&self, context: &Context, home: u16, notes: &Notes) -> bool {
        let own = context.identity().own;
        let Some(dealt) = self.assignment.dealt.get(&home) else {
            return home == own.member;
        };
        dealt
            .past
            .iter()
            .filter(|&&past| past != own.member)
            .all(|&past| {
                let living = context.living.borrow();
                let named = living
                    .iter()
                    .find(|incarnation| incarnation.member == past)
                    .copied();
                drop(living);
                let released = named.is_none_or(|incarnation| {
                    notes.has_in_force(context, incarnation, dealt.since)
                        || mutant::active(Mutant::ReassignedUnreleased)
                });
                if !released {
                    taken(Branch::Unreleased);
                }
                released && self.is_over(context, past)
            })
    }
}

impl Context {
    /// What this instance knows of who may grant. Not to be held while anything is reported to the context.
    #[inline]
    pub fn leases(&self) -> Ref<'_, Leases> {
        self.leasing.leases.borrow()
    }

    /// Reports what the epoch says of pools. Before [`Context::set_living`] of the same epoch.
    pub fn set_dealing(&self, epoch: u32, assignment: BlockAssignment) {
        let mut leases = self.leasing.leases.borrow_mut();
        (leases.epoch, leases.assignment) = (epoch, assignment);
        leases.version += 1;
    }

    /// How long this host may grant from its leases that too few members answer (microseconds); zero: as long as it likes. The
    /// same on all hosts. After the state was built.
    pub fn set_port_lease(&self, us: u64) {
        self.leasing.leases.borrow_mut().lease_us = us;
        if us != 0 && self.leasing.leases_any.get() {
            self.leasing.until_us.set(us);
        }
    }

    /// Reports that this instance has what the others have, from here on.
    pub fn set_joined(&self) {
        let mut leases = self.leasing.leases.borrow_mut();
        leases.since_us = self.now_us();
        leases.version += 1;
    }

    /// There is a pool whose blocks are leased.
    pub fn expect_leases(&self) {
        self.leasing.leases_any.set(true);
        let pools = &self.leasing.undeclared_pools;
        pools.set(pools.get() + 1);
    }

    /// The pool built last says how long entries that have its items live unused, in seconds for each kind of entry; 0: they never end.
    pub fn expect_holders(&self, idle: &[Tick]) {
        let pools = &self.leasing.undeclared_pools;
        pools.set(pools.get().saturating_sub(1));
        let longest = idle.iter().copied().map(outlasts).max().unwrap_or(0);
        self.leasing.held.set(self.leasing.held.get().max(longest));
    }

    /// Some table's entries end when nobody uses them for so many seconds; 0: never.
    pub fn expect_idle(&self, idle: Tick) {
        let longest = outlasts(idle);
        self.leasing
            .quarantine
            .set(self.leasing.quarantine.get().max(longest));
    }

    /// After so long a flow that nobody knows has gone quiet: the longest that an entry lives unused which may have an item of a pool.
    pub(crate) fn quarantine_us(&self) -> u64 {
        if mutant::active(Mutant::ReassignedBeforeIdle) {
            return 0;
        }
        let leasing = &self.leasing;
        let ticks = match leasing.undeclared_pools.get() {
            0 => leasing.held.get(),
            _ => leasing.quarantine.get().max(leasing.held.get()),
        };
        u64::from(ticks) * 1_000_000
    }

    /// Reads from the members' answers how long this host may grant.
    pub fn renew_lease(&self) {
        let until_us = match self.lease_us() {
            None => {
                taken(Branch::LeaseWithoutBound);
                u64::MAX
            }
            Some(lease_us) => match self.majority_answered_us() {
                None => {
                    taken(Branch::LeaseAlone);
                    u64::MAX
                }
                Some(answered_us) => answered_us.saturating_add(lease_us),
            },
        };
        self.leasing.until_us.set(until_us);
    }

    /// How long this host may grant after a majority answered it; `None` if as long as it likes.
    fn lease_us(&self) -> Option<u64> {
        let lease_us = self.leasing.leases.borrow().lease_us;
        let is_bounded = lease_us != 0 && !mutant::active(Mutant::LeaseWithoutEnd);
        is_bounded.then_some(lease_us)
    }

    /// When the answer came that, with this host and all later answers, leaves the others no majority; 0 if it never came, `None` if this
    /// host needs no answer.
    fn majority_answered_us(&self) -> Option<u64> {
        let members = &self.identity().members;
        let needed = members.len().div_ceil(2) - 1;
        let last = needed.checked_sub(1)?;
        let (living, covered) = (self.living.borrow(), self.covered_us.borrow());
        let answered = members
            .iter()
            .zip(covered.iter())
            .filter(|&(&member, &until)| {
                let incarnations = living
                    .iter()
                    .any(|incarnation| incarnation.member == member);
                member != self.identity().own.member && incarnations && until != u64::MAX
            });
        let mut latest = [0; MEMBERS_MAX];
        for (place, (_, &until)) in latest.iter_mut().zip(answered) {
            *place = until;
        }
        latest.sort_unstable_by(|left, right| right.cmp(left));
        let last = match mutant::active(Mutant::LeaseByLastAnswer) {
            true => 0,
            false => last,
        };
        let answered_us = latest[last.min(MEMBERS_MAX - 1)];
        taken(match answered_us {
            0 => Branch::LeaseUnanswered,
            _ => Branch::LeaseCounted,
        });
        Some(answered_us)
    }

    /// Reports whether another member has a later epoch in force than this host. An old epoch may give this host ports that the later
    /// one gives to others, so nothing is granted while that is so.
    pub fn set_outdated(&self, is_outdated: bool) {
        let outdated_us = &self.leasing.outdated_us;
        outdated_us.set(match is_outdated {
            true => outdated_us.get().min(self.now_us()),
            false => u64::MAX,
        });
        self.leasing.leases.borrow_mut().version += 1;
    }

    /// Whether another member has a later epoch in force than this host.
    #[inline]
    pub fn is_outdated(&self) -> bool {
        self.leasing.outdated_us.get() != u64::MAX
    }

    /// Whether this host may grant from its leases.
    #[inline]
    pub fn may_lease(&self) -> bool {
        self.now_us() < self.leasing.until_us.get() && !self.is_outdated()
    }

    /// Whether this host may handle packets: no other can have been given what it granted.
    #[inline(always)]
    pub fn may_serve(&self) -> bool {
        let until_us = self.leasing.until_us.get();
        let outdated_us = self.leasing.outdated_us.get();
        (until_us == u64::MAX
            || self.now_us() < until_us.saturating_add(self.quarantine_us())
            || mutant::active(Mutant::ServesWithoutLease))
            && (outdated_us == u64::MAX || self.now_us() < outdated_us + OUTDATED_SERVES_US)
    }
}
