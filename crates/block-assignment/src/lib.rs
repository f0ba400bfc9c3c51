//! Who holds what of a pool once members have died: what an epoch says of it, and how the next one is made.
//!
//! The blocks of a pool are dealt by place in the configured list of members. A place's blocks lie in [`PARTITIONS`] partitions. While
//! its member is in the epoch, it holds all of them; when an epoch leaves it out, each partition is dealt to one who goes on, and when it comes
//! back, it gets its partitions back. An epoch says the result, whole, so that anyone who missed epochs in between deals as the others
//! do. That a partition is dealt to a member does not mean that it may grant from it: `leases.rs` of the context of calls says when it may.

#![forbid(unsafe_code)]

pub mod mutant;

use std::collections::BTreeMap;

use mutant::Mutant;

/// Lots of a place: block number `q` of a place lies in partition `q` modulo so many.
pub const PARTITIONS: usize = 12;
/// Longer descriptions are none: 64 places, each with 64 earlier holders.
const BYTES_MAX: usize = 64 * (9 + 2 * PARTITIONS + 2 * 64) + 64 * 10 + 8;

/// Who holds the partitions of one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceAssignment {
    /// The epoch in which a partition of this place changed hands last.
    pub since: u32,
    /// The member that holds each partition.
    pub partitions: [u16; PARTITIONS],
    /// Members that held a partition of this place before, in order.
    pub past: Vec<u16>,
}

/// What an epoch says of pools: places whose partitions changed hands, and which incarnations are known to have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockAssignment {
    /// By member, the partitions of whose place changed hands. All other members hold their own.
    pub dealt: BTreeMap<u16, PlaceAssignment>,
    /// Of members that take no part, the last incarnation of which anyone who wrote the epoch knows that its process has ended.
    pub fenced: BTreeMap<u16, u64>,
}

impl BlockAssignment {
    /// Who holds a partition of a member's place.
    #[must_use]
    pub fn holder(&self, home: u16, partition: usize) -> u16 {
        let dealt = self.dealt.get(&home);
        dealt.map_or(home, |dealt| dealt.partitions[partition % PARTITIONS])
    }

    /// Whether it says nothing: all members hold what is theirs by place.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.dealt.is_empty() && self.fenced.is_empty()
    }

    /// Deals what a member that takes no part from `epoch` on holds to those who do: each partition to who holds fewest, the first
    /// by name of several.
    pub fn leave(&mut self, gone: u16, living: &[u16], epoch: u32) {
        self.deal_out(gone, living, epoch, true);
    }

    /// Deals the partitions of a place of which nothing was ever granted that may still be in use: nobody has had it, or all processes
    /// ended since. So who is dealt one need not wait. Nothing changes if the place was dealt before.
    pub fn deal_unclaimed(&mut self, home: u16, living: &[u16], epoch: u32) {
        if !self.dealt.contains_key(&home) {
            self.deal_out(home, living, epoch, false);
        }
    }

    fn deal_out(&mut self, gone: u16, living: &[u16], epoch: u32, is_claimed: bool) {
        if living.is_empty() {
            return;
        }
        self.dealt.entry(gone).or_insert_with(|| PlaceAssignment {
            since: epoch,
            partitions: [gone; PARTITIONS],
            past: Vec::new(),
        });
        let mut held = self.held(living);
        for dealt in self.dealt.values_mut() {
            for place in 0..PARTITIONS {
                if dealt.partitions[place] != gone {
                    continue;
                }
                let least = held.iter().min_by_key(|(_, count)| **count);
                let Some((&member, _)) = least else { continue };
                *held.entry(member).or_default() += 1;
                dealt.partitions[place] = member;
                dealt.since = epoch;
                // Only the place's own member, if that bug is planted.
                if is_claimed && (dealt.past.is_empty() || !mutant::active(Mutant::HeirNotNoted)) {
                    note(&mut dealt.past, gone);
                }
            }
        }
    }

    /// How many partitions each participant holds.
    fn held(&self, living: &[u16]) -> BTreeMap<u16, usize> {
        let of = |member: u16| {
            let own = usize::from(!self.dealt.contains_key(&member)) * PARTITIONS;
            let places = self.dealt.values();
            let partitions = places.flat_map(|dealt| &dealt.partitions);
            own + partitions.filter(|holder| **holder == member).count()
        };
        living.iter().map(|&member| (member, of(member))).collect()
    }

    /// Gives participants that have just begun an equal part of what lies in places without a participant: one partition after the
    /// other, from who holds most. Only partitions of places all of whose earlier holders take part change hands: for others a new
    /// holder would wait until the flows of the dead have gone quiet.
    pub fn spread(&mut self, new: &[u16], living: &[u16], epoch: u32) {
        loop {
            let held = self.held(living);
            let least = new
                .iter()
                .filter_map(|member| Some((*held.get(member)?, *member)));
            let Some((fewest, to)) = least.min() else {
                return;
            };
            let mut richer: Vec<(usize, u16)> = held
                .iter()
                .filter(|(_, count)| **count > fewest + 1)
                .map(|(&member, &count)| (count, member))
                .collect();
            richer.sort_unstable_by(|one, other| (other.0, one.1).cmp(&(one.0, other.1)));
            let moved = richer
                .into_iter()
                .any(|(_, from)| self.hand_over(from, to, living, epoch));
            if !moved {
                return;
            }
        }
    }

    /// Moves one partition of a place without a participant; whether there was one that may be moved.
    fn hand_over(&mut self, from: u16, to: u16, living: &[u16], epoch: u32) -> bool {
        let movable = self
            .dealt
            .iter_mut()
            .filter(|(home, _)| !living.contains(home))
            .filter(|(_, dealt)| dealt.past.iter().all(|past| living.contains(past)))
            .find_map(|(_, dealt)| {
                let held = dealt.partitions.iter().position(|&holder| holder == from);
                Some((dealt, held?))
            });
        let Some((dealt, partition)) = movable else {
            return false;
        };
        dealt.partitions[partition] = to;
        dealt.since = epoch;
        note(&mut dealt.past, from);
        true
    }

    /// Gives a member that takes part again from `epoch` on the partitions of its place back.
    pub fn come_back(&mut self, member: u16, epoch: u32) {
        self.fenced.remove(&member);
        let Some(dealt) = self.dealt.get_mut(&member) else {
            return;
        };
        for holder in &mut dealt.partitions {
            if *holder != member {
                if !mutant::active(Mutant::ReturnNotDated) {
                    dealt.since = epoch;
                }
                note(&mut dealt.past, *holder);
                *holder = member;
            }
        }
    }

    /// Notes that an incarnation of a member, and all before it, are known to have ended.
    pub fn fence(&mut self, member: u16, incarnation: u64) {
        self.fenced.insert(member, incarnation);
    }

    /// The assignment as bytes, for the members of one host among themselves.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((self.dealt.len() as u16).to_le_bytes());
        for (home, dealt) in &self.dealt {
            bytes.extend(home.to_le_bytes());
            bytes.extend(dealt.since.to_le_bytes());
            dealt
                .partitions
                .iter()
                .for_each(|holder| bytes.extend(holder.to_le_bytes()));
            bytes.extend((dealt.past.len() as u16).to_le_bytes());
            dealt
                .past
                .iter()
                .for_each(|member| bytes.extend(member.to_le_bytes()));
        }
        for (member, incarnation) in &self.fenced {
            bytes.extend(member.to_le_bytes());
            bytes.extend(incarnation.to_le_bytes());
        }
        bytes
    }

    /// Reads it back; no bytes are of one that says nothing. `None` if these are none, or more than members can have.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<BlockAssignment> {
        if bytes.len() > BYTES_MAX {
            return None;
        }
        let mut rest = bytes;
        let mut assignment = BlockAssignment::default();
        if rest.is_empty() {
            return Some(assignment);
        }
        for _ in 0..u16::from_le_bytes(take(&mut rest)?) {
            let home = u16::from_le_bytes(take(&mut rest)?);
            let since = u32::from_le_bytes(take(&mut rest)?);
            let mut partitions = [0; PARTITIONS];
            for holder in &mut partitions {
                *holder = u16::from_le_bytes(take(&mut rest)?);
            }
            let mut past = Vec::new();
            for _ in 0..u16::from_le_bytes(take(&mut rest)?) {
                past.push(u16::from_le_bytes(take(&mut rest)?));
            }
            assignment.dealt.insert(
                home,
                PlaceAssignment {
                    since,
                    partitions,
                    past,
                },
            );
        }
        while !rest.is_empty() {
            let member = u16::from_le_bytes(take(&mut rest)?);
            let incarnation = u64::from_le_bytes(take(&mut rest)?);
            assignment.fenced.insert(member, incarnation);
        }
        Some(assignment)
    }
}

fn note(past: &mut Vec<u16>, member: u16) {
    if let Err(place) = past.binary_search(&member) {
        past.insert(place, member);
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}
