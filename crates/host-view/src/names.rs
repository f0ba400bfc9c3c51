//! The names of a host and its parts, which stay the same while it runs; but those of other hosts, where they register, come with epochs.

use asterism_epochs::MemberNames;
use asterism_placement::{Incarnation, MemberId};

use crate::own::Own;

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
    #[must_use]
    pub fn member(&self, member: MemberId) -> String {
        self.members.get(member).unwrap_or_default()
    }
}
