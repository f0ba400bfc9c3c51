//! Which instance of which member a context belongs to, and where the numbers of its operation groups come from.

use core::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::mutant::{self, Mutant};
use crate::stamp::OriginName;

/// Which member of the cluster this instance belongs to, and who else there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The instance's own host.
    pub own: OriginName,
    /// All members of the epoch in order, own host included. Leases are dealt by the place in this list.
    pub members: Vec<u16>,
    /// Which instance of the host this is, of how many.
    pub lane: (u16, u16),
}

impl Identity {
    /// A cluster of one.
    pub fn alone() -> Self {
        Self {
            own: OriginName {
                member: 0,
                incarnation: 1,
            },
            members: vec![0],
            lane: (0, 1),
        }
    }

    /// Of how many shares leases are cut as this host sees it, and which one is this instance's.
    ///
    /// Members first, then each member's instances among themselves: a host need not know how many
    /// instances the others run, and members with different numbers of them still never share a lease.
    pub fn share(&self) -> (u32, u32) {
        let members = self.members.len().max(1) as u32;
        let place = self
            .members
            .iter()
            .position(|&member| member == self.own.member)
            .unwrap_or(0) as u32;
        let lanes = u32::from(self.lane.1.max(1));
        if mutant::active(Mutant::LeasesCountInstances) {
            return (place * lanes + u32::from(self.lane.0), members * lanes);
        }
        (place + members * u32::from(self.lane.0), members * lanes)
    }
}

/// Where the numbers of operation groups come from.
#[derive(Debug)]
pub enum Sequencer {
    /// The host has one instance.
    Own(Cell<u64>),
    /// Instances of one host draw from one counter; once a packet that writes, never for one that reads.
    Shared(Arc<AtomicU64>),
}

impl Sequencer {
    #[inline]
    pub(crate) fn draw(&self) -> u64 {
        match self {
            Self::Own(last) => {
                last.set(last.get() + 1);
                last.get()
            }
            Self::Shared(last) => last.fetch_add(1, Ordering::Relaxed) + 1,
        }
    }
}
