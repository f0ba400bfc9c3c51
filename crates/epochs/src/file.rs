//! An epoch in the form of its file: the members that take part, each in which incarnation, and who holds the ports of members that
//! left. The next epoch is made of it.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use asterism_placement::membership::Roster;
use asterism_placement::{Epoch, Incarnation, MemberId};
use asterism_state::{BlockAssignment, PARTITIONS, PlaceAssignment};
use serde::{Deserialize, Serialize};

use crate::error::{EpochFault, NextError, ParseError, ReadError, RecordError};
use crate::handing::EPOCH_BYTES_MAX;
use crate::hosts::HostEntry;
use crate::start_decision;

/// The number of the member in a place; `None` if no place has the name.
#[must_use]
pub fn member(places: &[String], name: &str) -> Option<MemberId> {
    let place = places.iter().position(|member| member == name)?;
    u16::try_from(place + 1).ok().map(MemberId)
}

/// The file's first line.
const HEADING: &str = "# The cluster's members and their incarnations. Written by `asterism epoch`; the same on all hosts.\n";

/// An epoch in the form of its file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EpochFile {
    /// Its number. Greater numbers are later.
    pub epoch: u32,
    /// Whether all members restart with only their saved state.
    #[serde(default)]
    pub founding: bool,
    /// The members that take part, and their incarnations.
    pub members: BTreeMap<String, u64>,
    /// The members that took part before, with their last incarnations.
    #[serde(default)]
    pub left: BTreeMap<String, u64>,
    /// The incarnations of those members whose processes are known to have ended.
    #[serde(default)]
    pub fenced: BTreeMap<String, u64>,
    /// The holders of the ports of members that left at any time.
    #[serde(default)]
    pub ports: BTreeMap<String, HeldPorts>,
    /// In a cluster whose configuration lists no members, its hosts; all other tables name places.
    #[serde(default, skip_serializing)]
    pub hosts: BTreeMap<String, HostEntry>,
}

/// The holders of the ports that belong to a member by its place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldPorts {
    /// The epoch of the last change of holders.
    pub since: u32,
    /// The holder of each partition.
    #[serde(alias = "lots")]
    pub partitions: Vec<String>,
    /// Earlier holders of any partition.
    #[serde(default)]
    pub past: Vec<String>,
}

impl EpochFile {
    /// Reads an epoch.
    ///
    /// # Errors
    /// The mistake, and the cure.
    pub fn read(path: &Path, places: &[String]) -> Result<EpochFile, ReadError> {
        let name = path.display().to_string();
        match std::fs::File::open(path) {
            Ok(file) => EpochFile::read_from(file, &name, places),
            Err(error) => Err(match error.kind() {
                std::io::ErrorKind::NotFound => ReadError::NoFile(name),
                _ => ReadError::Unreadable { name, error },
            }),
        }
    }

    /// Reads an epoch from a stream, which messages call `name`. Reads no more bytes than an epoch may have.
    ///
    /// # Errors
    /// The mistake, and the cure.
    pub fn read_from(
        source: impl Read,
        name: &str,
        places: &[String],
    ) -> Result<EpochFile, ReadError> {
        let mut bytes = Vec::new();
        source
            .take(EPOCH_BYTES_MAX as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| {
                let name = name.to_owned();
                ReadError::Unreadable { name, error }
            })?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
            let name = name.to_owned();
            ReadError::NotText { name, line }
        })?;
        Ok(EpochFile::parse(&text, name, places)?)
    }

    /// Reads an epoch's text, which messages call `name`.
    ///
    /// # Errors
    /// The mistake.
    pub fn parse(text: &str, name: &str, places: &[String]) -> Result<EpochFile, ParseError> {
        let name = || name.to_owned();
        if text.len() > EPOCH_BYTES_MAX {
            return Err(ParseError::TooLong(name()));
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let file: EpochFile = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| {
                text.get(..span.start)
                    .map_or(1, |before| before.matches('\n').count() + 1)
            });
            ParseError::Syntax {
                name: name(),
                line,
                message: error.message().to_owned(),
            }
        })?;
        if let Some(unknown) = file.names().find(|one| member(places, one).is_none()) {
            return Err(ParseError::OtherCluster {
                name: name(),
                unknown: unknown.clone(),
                members: places.join(", "),
            });
        }
        file.check().map_err(|fault| ParseError::Contradictory {
            name: name(),
            fault,
        })?;
        Ok(file)
    }

    /// The names of participants and of present and past holders of ports. A member that left may be gone from the configuration.
    fn names(&self) -> impl Iterator<Item = &String> {
        let ports = self.ports.iter();
        let holders = ports.flat_map(|(name, held)| {
            let others = held.past.iter().chain(&held.partitions);
            others.chain([name])
        });
        let places = self.hosts.values().map(|entry| &entry.place);
        self.members.keys().chain(holders).chain(places)
    }

    fn check(&self) -> Result<(), EpochFault> {
        if self.epoch == 0 {
            return Err(EpochFault::NumberZero);
        }
        if self.members.is_empty() {
            return Err(EpochFault::NoMember);
        }
        for (name, incarnation) in &self.members {
            if *incarnation == 0 || self.left.get(name).is_some_and(|left| left >= incarnation) {
                return Err(EpochFault::Used {
                    member: name.clone(),
                    incarnation: *incarnation,
                });
            }
        }
        for (name, incarnation) in &self.fenced {
            if self.left.get(name) != Some(incarnation) {
                return Err(EpochFault::NotFenceable {
                    member: name.clone(),
                    incarnation: *incarnation,
                });
            }
        }
        for (name, held) in &self.ports {
            if held.partitions.len() != PARTITIONS || held.since == 0 || held.since > self.epoch {
                return Err(EpochFault::Partitions(name.clone()));
            }
            if let Some(gone) = held
                .partitions
                .iter()
                .find(|holder| !self.members.contains_key(*holder))
            {
                return Err(EpochFault::HolderGone {
                    holder: gone.clone(),
                    member: name.clone(),
                });
            }
            if !held.past.is_sorted() {
                return Err(EpochFault::PastUnsorted(name.clone()));
            }
        }
        self.check_hosts()
    }

    /// The holders of the blocks of pools.
    #[must_use]
    pub fn assignment(&self, places: &[String]) -> BlockAssignment {
        let member = |name: &String| member(places, name).map_or(0, |member| member.0);
        let mut assignment = BlockAssignment::default();
        for (name, held) in &self.ports {
            let mut partitions = [0; PARTITIONS];
            for (partition, holder) in partitions.iter_mut().zip(&held.partitions) {
                *partition = member(holder);
            }
            let mut past: Vec<u16> = held.past.iter().map(member).collect();
            past.sort_unstable();
            let dealt = PlaceAssignment {
                since: held.since,
                partitions,
                past,
            };
            assignment.dealt.insert(member(name), dealt);
        }
        for (name, &incarnation) in &self.fenced {
            assignment.fence(member(name), incarnation);
        }
        assignment
    }

    /// Assigns ports according to `change`.
    pub(crate) fn deal(&mut self, places: &[String], change: impl FnOnce(&mut BlockAssignment)) {
        let mut assignment = self.assignment(places);
        change(&mut assignment);
        let name = |member: &u16| {
            let place = usize::from(*member).wrapping_sub(1);
            places.get(place).cloned().unwrap_or_default()
        };
        let sorted = |members: &[u16]| {
            let mut names: Vec<String> = members.iter().map(name).collect();
            names.sort_unstable();
            names
        };
        let ports = assignment.dealt.iter().map(|(home, dealt)| {
            let held = HeldPorts {
                since: dealt.since,
                partitions: dealt.partitions.iter().map(name).collect(),
                past: sorted(&dealt.past),
            };
            (name(home), held)
        });
        self.ports = ports.collect();
    }

    /// The epoch after this one, in which the processes of these members, which have left, are known to have ended.
    ///
    /// # Errors
    /// A name of a member that takes part, or an unknown name.
    pub fn next_fenced(&self, places: &[String], names: &[String]) -> Result<EpochFile, NextError> {
        let mut next = EpochFile {
            epoch: self.number_after()?,
            founding: false,
            ..self.clone()
        };
        next.fence(names)?;
        // Left by an earlier version.
        next.deal_to_members(places, names, &[]);
        Ok(next)
    }

    /// Notes that the processes of these members, which have left, are known to have ended.
    ///
    /// # Errors
    /// A name of a member that takes part, or an unknown name.
    pub fn fence(&mut self, names: &[String]) -> Result<(), NextError> {
        for name in names {
            let Some(&incarnation) = self.left.get(name) else {
                return Err(NextError::NotLeft(name.clone()));
            };
            self.fenced.insert(name.clone(), incarnation);
        }
        Ok(())
    }

    /// Whether all its members start with only their saved state.
    #[must_use]
    pub fn is_founding(&self) -> bool {
        self.founding || self.epoch == 1
    }

    /// The epoch that hosts put in force.
    #[must_use]
    pub fn roster(&self, places: &[String]) -> Roster {
        let members = self.members.iter().filter_map(|(name, incarnation)| {
            let member = member(places, name)?;
            Some((member, Some(Incarnation(*incarnation))))
        });
        Roster {
            epoch: Epoch(self.epoch),
            members: members.collect(),
            assignment: self.assignment(places).to_bytes(),
        }
    }

    /// The first epoch: all members, in their first incarnations.
    #[must_use]
    pub fn first(places: &[String]) -> EpochFile {
        EpochFile {
            epoch: 1,
            members: places.iter().map(|name| (name.clone(), 1)).collect(),
            ..EpochFile::default()
        }
    }

    /// The epoch after this one: without `without`, with new incarnations of `again`, or with new incarnations of all and no state.
    ///
    /// # Errors
    /// An unknown name, or a name that is not a member.
    pub fn next(
        &self,
        places: &[String],
        without: &[String],
        again: &[String],
        founding: bool,
    ) -> Result<EpochFile, NextError> {
        let mut next = EpochFile {
            epoch: self.number_after()?,
            founding,
            ..self.clone()
        };
        for name in without {
            match next.members.remove(name) {
                Some(incarnation) => _ = next.left.insert(name.clone(), incarnation),
                None => {
                    return Err(NextError::TakesNoPart {
                        member: name.clone(),
                        epoch: self.epoch,
                    });
                }
            }
        }
        next.fenced.retain(|name, _| !again.contains(name));
        for name in again {
            if member(places, name).is_none() {
                return Err(NextError::NoMember {
                    unknown: name.clone(),
                    members: places.join(", "),
                });
            }
            let left = next.left.remove(name).unwrap_or(0);
            let incarnation = next.members.entry(name.clone()).or_insert(0);
            *incarnation = left.max(*incarnation).saturating_add(1);
        }
        if founding {
            for (name, incarnation) in &mut next.members {
                *incarnation = incarnation.saturating_add(u64::from(!again.contains(name)));
            }
        } else if next.members.keys().all(|name| again.contains(name)) {
            return Err(NextError::StateLost);
        }
        next.deal_to_members(places, without, again);
        Ok(next)
    }

    /// The epoch after this one, when the processes of all members have ended: those that are `present` begin again with their saved
    /// state, and the others take no part.
    ///
    /// # Errors
    /// There is no next number.
    pub fn next_founding(&self, present: &[String]) -> Result<EpochFile, NextError> {
        let mut left = self.left.clone();
        left.extend(self.members.clone());
        let members = present.iter().map(|name| {
            let last = left.remove(name).unwrap_or_default();
            (name.clone(), last.saturating_add(1))
        });
        Ok(EpochFile {
            epoch: self.number_after()?,
            founding: true,
            members: members.collect(),
            left,
            ..EpochFile::default()
        })
    }

    fn number_after(&self) -> Result<u32, NextError> {
        let next = self.epoch.checked_add(1);
        next.ok_or(NextError::LastNumber(self.epoch))
    }

    /// Assigns the blocks of members that left to the participants, and returns to members that came back the blocks of their place.
    fn deal_to_members(&mut self, places: &[String], without: &[String], again: &[String]) {
        if self.is_founding() {
            // All processes have ended, so every member holds the blocks of its place.
            self.ports.clear();
            self.fenced.clear();
            return;
        }
        let ids = |names: &mut dyn Iterator<Item = &String>| -> Vec<u16> {
            let members = names.filter_map(|name| member(places, name));
            members.map(|member| member.0).collect()
        };
        let living = ids(&mut self.members.keys());
        let epoch = self.epoch;
        let gone = ids(&mut without.iter().filter(|name| !again.contains(name)));
        let back = ids(&mut again.iter());
        self.deal(places, |assignment| {
            for &member in &gone {
                assignment.leave(member, &living, epoch);
            }
            for &member in &back {
                assignment.come_back(member, epoch);
            }
        });
    }

    /// Replaces the file atomically: a reader finds the old epoch or the new one, complete.
    ///
    /// # Errors
    /// The reason; the file is unchanged.
    pub fn write(&self, path: &Path) -> Result<(), RecordError> {
        start_decision::write_synced(path, ".new", &self.text())?;
        start_decision::show_renamed(path);
        Ok(())
    }

    /// As [`EpochFile::write`], by this member's host: safe beside other hosts with the same file, and beside the command.
    ///
    /// # Errors
    /// As for `write`.
    pub fn write_as(&self, path: &Path, member: &str) -> Result<(), RecordError> {
        start_decision::write_synced(path, &format!(".{member}.new"), &self.text())
    }

    /// The text of the file.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{HEADING}epoch = {}\n", self.epoch);
        if self.founding {
            text.push_str("founding = true\n");
        }
        let sections = [
            ("members", &self.members),
            ("left", &self.left),
            ("fenced", &self.fenced),
        ];
        for (section, incarnations) in sections {
            if !incarnations.is_empty() {
                text.push_str(&format!("\n[{section}]\n"));
            }
            for (name, incarnation) in incarnations {
                text.push_str(&format!("{name} = {incarnation}\n"));
            }
        }
        for (name, held) in &self.ports {
            let list = |names: &[String]| {
                let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
                quoted.join(", ")
            };
            text.push_str(&format!(
                "\n[ports.{name}]\nsince = {}\npartitions = [{}]\npast = [{}]\n",
                held.since,
                list(&held.partitions),
                list(&held.past)
            ));
        }
        if !self.hosts.is_empty() {
            text.push_str("\n[hosts]\n");
        }
        for (name, entry) in &self.hosts {
            let HostEntry { place, address } = entry;
            text.push_str(&format!(
                "{name} = {{ place = \"{place}\", address = \"{address}\" }}\n"
            ));
        }
        text
    }
}
