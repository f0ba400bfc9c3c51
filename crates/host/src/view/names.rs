//! The names of a host and its parts, which stay the same while it runs; but those of other hosts, where they register, come with epochs.

use std::sync::Arc;

use arc_swap::ArcSwap;
use asterism_placement::{Incarnation, MemberId};

use super::own::Own;

/// The names of all members, by their numbers.
#[derive(Clone, Debug)]
pub struct MemberNames {
    names: Arc<ArcSwap<Vec<String>>>,
    /// Where hosts register, the names of the places: a place without a host has this name.
    places: Arc<[String]>,
}

impl MemberNames {
    /// Names that stay.
    #[must_use]
    pub fn listed(names: Vec<String>) -> MemberNames {
        MemberNames {
            names: Arc::new(ArcSwap::from_pointee(names)),
            places: Arc::new([]),
        }
    }

    /// Names of places, until epochs say which hosts have them.
    #[must_use]
    pub fn of_places(places: Vec<String>) -> MemberNames {
        MemberNames {
            places: places.clone().into(),
            ..MemberNames::listed(places)
        }
    }

    /// Other names, in the same order.
    pub fn set(&self, names: Vec<String>) {
        if **self.names.load() != names {
            self.names.store(Arc::new(names));
        }
    }

    /// The name of a member; `None` for one that is not in the list.
    #[must_use]
    pub fn get(&self, member: MemberId) -> Option<String> {
        let place = usize::from(member.0).wrapping_sub(1);
        self.names.load().get(place).cloned()
    }

    /// Whether a place has no host.
    #[must_use]
    pub fn is_vacant(&self, member: MemberId) -> bool {
        let place = usize::from(member.0).wrapping_sub(1);
        let name = self.places.get(place);
        name.is_some() && self.names.load().get(place) == name
    }
}

/// The names of a host and its parts.
#[derive(Clone, Debug)]
pub struct Names {
    /// The cluster.
    pub cluster: String,
    /// The host.
    pub host: String,
    /// All members, in order.
    pub members: MemberNames,
    /// All sites, in order; empty where members have none.
    pub sites: Vec<String>,
    /// The network function.
    pub function: &'static str,
    /// Its state objects.
    pub objects: &'static [&'static str],
    /// The stages of a chain, in order.
    pub stages: Vec<&'static str>,
    /// The function's own reasons and metrics.
    pub own: Own,
    /// The ports: name, kind and interface or file.
    pub ports: Vec<(&'static str, &'static str, String)>,
    /// This start of the host.
    pub incarnation: Incarnation,
    /// The shape: a number that must be equal on all hosts.
    pub shape: String,
    /// The capacity of the log, in groups and bytes.
    pub log: (usize, usize),
}

impl Names {
    /// The name of a member; empty for one that is not in the list.
    pub(crate) fn member(&self, member: MemberId) -> String {
        self.members.get(member).unwrap_or_default()
    }
}
