//! What members report of each other: which of them receives which. The acknowledgements' echoes carry it, so it costs no byte.

use core::time::Duration;

use crate::envelope::Header;
use crate::{MemberId, Time};

use super::replicator::Replicator;
use crate::membership::PeerIndex;

/// How often the echoes of other members' timestamps are read in the messages of one member. Bounds the cost; a silence is reported
/// after seconds.
const ECHOES_READ_INTERVAL: Duration = Duration::from_millis(100);

/// What a member has not acknowledged of the own stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lacking {
    /// It has applied the stream up to here.
    pub applied: u64,
    /// It has received the stream up to here.
    pub received: u64,
    /// Bytes of groups in the oldest message that it lacks, with their lengths; 0 if it lacks none that was sent.
    pub message_bytes: usize,
    /// How often that message was sent again.
    pub tries: u8,
}

impl Replicator {
    /// Takes note of which other members the sender of a message receives.
    pub(super) fn take_echoes_of_others(
        &mut self,
        now: Time,
        peer_index: PeerIndex,
        header: &Header<'_>,
    ) {
        let peer = &mut self.peers[peer_index];
        let (from, read) = (peer.member, peer.echoes_read);
        if read.is_some_and(|read| now.since(read) < ECHOES_READ_INTERVAL) {
            return;
        }
        for echo in header.echoes() {
            let Some(of) = self.membership.index_of(echo.member) else {
                continue;
            };
            self.peers[peer_index].echoes_read = Some(now);
            // Before this member's clock began nothing counts here.
            if echo.held > now.since(Time::ZERO) {
                continue;
            }
            let at = now.saturating_sub(echo.held);
            let known = &mut self.progress.members[of].heard_elsewhere;
            if of != self.membership.me() && known.is_none_or(|(_, known)| at > known) {
                *known = Some((from, at));
            }
        }
    }

    /// What a member served from the log has not acknowledged; `None` if it has all of it, or is no such member.
    #[must_use]
    pub fn lacking(&self, member: MemberId) -> Option<Lacking> {
        let peer_index = self.membership.peer_of(member)?;
        let peer = &self.peers[peer_index];
        let served = self.progress.members[self.membership.index(peer_index)].standing;
        if served != super::Standing::Current || peer.acknowledged >= self.log.head() {
            return None;
        }
        let received = peer.received_through();
        let number = self.sent.find(received + 1);
        let run = (number < self.sent.end()).then(|| *self.sent.run(number));
        let first = |run: &super::sent::Run| run.first.max(self.log.pruned() + 1);
        Some(Lacking {
            applied: peer.acknowledged,
            received,
            message_bytes: run.map_or(0, |run| self.log.run_bytes(first(&run), run.last)),
            tries: run.map_or(0, |run| run.tries),
        })
    }
}
