//! How much may go again at once. While the path is congested, what was lost was lost because a queue overflowed: all of it
//! again at once would overflow that queue again. So repairs then go a round's bytes at a time, each after the echoes of those
//! before it. While the path is free nothing is bounded.

use crate::Time;
use crate::branch::{Branch, taken};
use crate::mutant::{self, Mutant};

use super::progress::Standing;
use super::replicator::Replicator;

/// Repairs on a congested path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Repairs {
    /// Bytes that may go again before the next pause; `None` on a free path.
    left: Option<u64>,
    /// When the last ones went.
    last: Time,
    /// The pause ends then at the latest.
    paused_until: Option<Time>,
}

impl Repairs {
    /// When repairs may go at the latest, if some wait.
    pub(super) fn due(&self) -> Time {
        self.paused_until.unwrap_or(Time::ZERO)
    }
}

impl Replicator {
    /// Whether repairs may go now.
    pub(super) fn repairs_may_go(&mut self, now: Time) -> bool {
        let most = self.coalescing.window().bytes;
        if most == 0 {
            self.repairs = Repairs::default();
            return true;
        }
        if let Some(until) = self.repairs.paused_until {
            let last = self.repairs.last;
            let mut served = self
                .peers
                .iter()
                .filter(|peer| peer.standing == Standing::Current && peer.incarnation.is_some());
            let is_stuck = mutant::active(Mutant::RepairsStayPaused);
            let are_echoed = served.all(|peer| peer.echoed >= last);
            if is_stuck || (!are_echoed && until > now) {
                taken(Branch::RepairsWait);
                return false;
            }
            taken(Branch::RepairsGoOn);
            self.repairs = Repairs::default();
        }
        self.repairs.left.get_or_insert(most);
        true
    }

    /// So many bytes went again.
    pub(super) fn repaired(&mut self, now: Time, bytes: usize) {
        let Some(left) = &mut self.repairs.left else {
            return;
        };
        *left = left.saturating_sub(bytes as u64);
        self.repairs.last = self.clock;
        if *left == 0 {
            taken(Branch::RepairsUsedUp);
            self.repairs.paused_until = Some(now + self.path(now).round_trip);
        }
    }
}
