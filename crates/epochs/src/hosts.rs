//! Clusters whose configuration lists no members, but says how many *places* there are: the epoch says which host has which place, and
//! at which address it is.
//!
//! Everything else of an epoch is of places, as in other clusters: who takes part in which incarnation, and who holds whose ports. So a
//! place that passes from one host to another has incarnations that only grow, and its ports are handed over as to a member that
//! returns. A place that nobody has had is held by the others from the first epoch on.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use asterism_placement::MemberId;
use serde::{Deserialize, Serialize};

use crate::error::EpochFault;
use crate::file::{EpochFile, member};

/// Bytes of a host's name at most.
pub const HOST_NAME_BYTES_MAX: usize = 63;

/// A host of a cluster that lists no members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostEntry {
    /// Its place, which it keeps until it is forgotten.
    pub place: String,
    /// Where its state channel is.
    pub address: SocketAddr,
}

/// The names of the places of a cluster that lists no members.
#[must_use]
pub fn place_names(places: u16) -> Vec<String> {
    (1..=places).map(|place| format!("place-{place}")).collect()
}

/// Whether this may be a host's name: as in a configuration, which checks it first, but names come from the network too.
#[must_use]
pub fn is_host_name(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    let ends = bytes.first().zip(bytes.last());
    ends.is_some_and(|(first, last)| good(*first) && good(*last))
        && bytes.len() <= HOST_NAME_BYTES_MAX
        && bytes.iter().all(|byte| good(*byte) || *byte == b'-')
}

/// Whether a host's state channel can be at an address.
#[must_use]
pub fn is_host_address(address: SocketAddr) -> bool {
    let ip = address.ip();
    address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast()
}

impl EpochFile {
    /// The first epoch of a cluster without a list: these places have hosts, and their members hold the ports of all others.
    #[must_use]
    pub fn first_of(
        places: &[String],
        members: impl IntoIterator<Item = String>,
        hosts: BTreeMap<String, HostEntry>,
    ) -> EpochFile {
        let mut first = EpochFile {
            epoch: 1,
            members: members.into_iter().map(|place| (place, 1)).collect(),
            hosts,
            ..EpochFile::default()
        };
        first.deal_places(places, None);
        first
    }

    /// Completes an epoch of a cluster without a list, which follows `before`: participants hold the ports of all places without one,
    /// and those that begin in this epoch get an equal part.
    pub fn deal_places(&mut self, places: &[String], before: Option<&EpochFile>) {
        let ids = |names: &mut dyn Iterator<Item = &String>| -> Vec<u16> {
            let members = names.filter_map(|name| member(places, name));
            members.map(|member| member.0).collect()
        };
        let (epoch, is_founding) = (self.epoch, self.is_founding());
        let begins = |(place, incarnation): &(&String, &u64)| {
            before.is_none_or(|before| before.members.get(*place) != Some(*incarnation))
        };
        let living = ids(&mut self.members.keys());
        let new = ids(&mut self.members.iter().filter(begins).map(|(place, _)| place));
        let absent = places
            .iter()
            .filter(|place| !self.members.contains_key(*place));
        let (mut unclaimed, mut unsure) = (Vec::new(), Vec::new());
        let mut ended = BTreeMap::new();
        for place in absent {
            let Some(id) = member(places, place) else {
                continue;
            };
            // Before a founding epoch all members have ended; of a place that was left before only fencing says so.
            let is_ended = match (self.left.get(place), before) {
                (None, _) => true,
                (Some(last), Some(before)) if is_founding => {
                    before.members.get(place) == Some(last)
                        || before.fenced.get(place) == Some(last)
                }
                (Some(_), _) => false,
            };
            match is_ended {
                true => unclaimed.push(id.0),
                false => unsure.push(id.0),
            }
            if let (true, Some(last)) = (is_ended, self.left.get(place)) {
                ended.insert(place.clone(), *last);
            }
        }
        if is_founding {
            self.fenced = ended;
        }
        self.deal(places, |assignment| {
            if is_founding {
                for &place in &unsure {
                    assignment.leave(place, &living, epoch);
                }
            }
            for &place in &unclaimed {
                assignment.deal_unclaimed(place, &living, epoch);
            }
            if !is_founding {
                assignment.spread(&new, &living, epoch);
            }
        });
    }

    /// The place of a host; `None` if the epoch does not know the host.
    #[must_use]
    pub fn place_of(&self, host: &str) -> Option<&str> {
        self.hosts.get(host).map(|entry| entry.place.as_str())
    }

    /// The host that has a place.
    #[must_use]
    pub fn host_at(&self, place: &str) -> Option<&str> {
        let entry = self.hosts.iter().find(|(_, entry)| entry.place == place);
        entry.map(|(name, _)| name.as_str())
    }

    /// The name of each place's host, or the place's own name.
    #[must_use]
    pub fn host_names(&self, places: &[String]) -> Vec<String> {
        let name = |place: &String| self.host_at(place).unwrap_or(place).to_owned();
        places.iter().map(name).collect()
    }

    /// Where the state channels of participants are.
    #[must_use]
    pub fn addresses(&self, places: &[String]) -> Vec<(MemberId, SocketAddr)> {
        let takes_part = |entry: &&HostEntry| self.members.contains_key(&entry.place);
        let entries = self.hosts.values().filter(takes_part);
        entries
            .filter_map(|entry| Some((member(places, &entry.place)?, entry.address)))
            .collect()
    }

    /// Contradictions in what it says of hosts.
    pub(crate) fn check_hosts(&self) -> Result<(), EpochFault> {
        if self.hosts.is_empty() {
            return Ok(());
        }
        let mut taken: BTreeMap<&str, &str> = BTreeMap::new();
        let mut addresses: BTreeMap<SocketAddr, &str> = BTreeMap::new();
        for (name, entry) in &self.hosts {
            if !is_host_name(name) {
                return Err(EpochFault::HostName(name.clone()));
            }
            if !is_host_address(entry.address) {
                let (host, address) = (name.clone(), entry.address);
                return Err(EpochFault::HostAddress { host, address });
            }
            if let Some(other) = taken.insert(&entry.place, name) {
                return Err(EpochFault::PlaceTwice {
                    place: entry.place.clone(),
                    hosts: [other.to_owned(), name.clone()],
                });
            }
            let takes_part = self.members.contains_key(&entry.place);
            if takes_part && let Some(other) = addresses.insert(entry.address, name) {
                return Err(EpochFault::AddressTwice {
                    address: entry.address,
                    hosts: [other.to_owned(), name.clone()],
                });
            }
        }
        match self
            .members
            .keys()
            .find(|place| !taken.contains_key(place.as_str()))
        {
            Some(place) => Err(EpochFault::NoHost(place.clone())),
            None => Ok(()),
        }
    }

    /// A fact about hosts that a later epoch lacks: a member that goes on is the same host at the same address.
    pub(crate) fn host_forgotten_by(&self, next: &EpochFile) -> Option<String> {
        let goes_on = |entry: &HostEntry| {
            let incarnation = self.members.get(&entry.place);
            incarnation.is_some() && incarnation == next.members.get(&entry.place)
        };
        self.hosts
            .iter()
            .filter(|(_, entry)| goes_on(entry))
            .find(|(name, entry)| next.hosts.get(*name) != Some(entry))
            .map(|(name, entry)| {
                format!("that host {name} is {} at {}", entry.place, entry.address)
            })
    }
}
