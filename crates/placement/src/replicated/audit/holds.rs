//! What a replicator can say of what it has.

use super::super::Replicator;
use super::reading::Reading;
use crate::MemberId;
use crate::envelope::KIND_AUDIT;
use crate::membership::{PeerIndex, Place};
use crate::mutant::{self, Mutant};

/// What a member has of each stream of the cluster, by the order of names: exactly this, when `None` of it is in doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holds {
    /// Everything up to here.
    pub least: Vec<u64>,
    /// Nothing beyond this.
    pub most: Vec<u64>,
}

impl Replicator {
    /// What this member has of each stream, by the order of names; `None` while it may have something beyond that, of an
    /// snapshot or of an incarnation that ended.
    pub(super) fn holds(&self) -> Option<Holds> {
        let open = self.closings.is_one_open();
        let beyond = |peer_index: PeerIndex| {
            let peer = &self.peers[peer_index];
            self.membership.is_peer_present(peer_index) && peer.may_be_exceeded()
        };
        let half = self.snapshots.has_part()
            && self.peers.places().any(beyond)
            && !mutant::active(Mutant::ReadsHalfASnapshot);
        if !self.membership.is_ready() || open || half {
            return None;
        }
        let mut holds = Holds {
            least: vec![0; self.membership.len()],
            most: vec![0; self.membership.len()],
        };
        let own = self.membership.me().number();
        (holds.least[own], holds.most[own]) = (self.log.head(), self.log.head());
        for (peer_index, peer) in self.peers.each() {
            let index = self.membership.index(peer_index).number();
            if self.membership.is_peer_present(peer_index) {
                holds.least[index] = peer.inbound.received();
                holds.most[index] = peer.inbound.reaches();
            }
        }
        Some(holds)
    }

    /// The first member by name that has joined, as far as is known here.
    pub(super) fn first_joined(&self) -> Option<MemberId> {
        let joined = |peer_index: &PeerIndex| {
            self.membership.is_peer_present(*peer_index) && !self.membership.is_joining(*peer_index)
        };
        let others = self.peers.places().filter(joined);
        let others = others.map(|peer_index| self.peers[peer_index].member);
        let own = self.membership.is_ready().then_some(self.config.member);
        others.chain(own).min()
    }

    /// Writes a message to all that has this reading of an auditor.
    pub(super) fn write_reading(&mut self, reading: &Reading, buffer: &mut Vec<u8>) {
        self.begin(buffer);
        reading.write(self.writer.begin());
        self.writer.end(KIND_AUDIT, buffer);
        self.counters.messages_without_records_sent += 1;
    }
}
