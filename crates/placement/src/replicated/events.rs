//! What a replicator reports to its driver, and where its messages go.

use std::collections::VecDeque;

use super::sites::SiteSet;
use crate::{Incarnation, MemberId};

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    /// Every other member.
    All,
    /// One member.
    One(MemberId),
    /// All other members of these sites. Only with [`Config::sites`](super::Config::sites); [`Replicator::plan`](super::Replicator::plan) says which members it and `All` go to then.
    Sites(SiteSet),
}

/// What a replicator tells its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A member was heard for the first time.
    Heard {
        /// Who.
        member: MemberId,
        /// In which incarnation; another one is refused from now on.
        incarnation: Incarnation,
    },
    /// A member fell off the log and must be served from the tables: scan them for entries and tombstones stamped beyond
    /// `beyond`, [`submit_snapshot`](super::Replicator::submit_snapshot) them, then [`finish_snapshot`](super::Replicator::finish_snapshot). A
    /// second such event for a member replaces the first: stop that scan, if it still goes on, and begin this one. The
    /// scan must see every own group submitted so far, and all that was reported as applied.
    LaggingReplica {
        /// Who.
        member: MemberId,
        /// The number of this scan.
        scan: u32,
        /// For each origin the sequence up to which that member has it.
        beyond: Vec<(MemberId, u64)>,
    },
    /// An epoch ended this incarnation of a member. What was delivered of it comes before this event: once all instances have
    /// applied that, call [`Replicator::ended_applied`](super::Replicator::ended_applied).
    Ended {
        /// Who.
        member: MemberId,
        /// Which incarnation.
        incarnation: Incarnation,
    },
    /// All members of the epoch have the same of an ended incarnation, and all that they committed before that is applied here:
    /// everything of it is stable, and nothing more of it will come.
    Closed {
        /// Who.
        member: MemberId,
        /// Which incarnation.
        incarnation: Incarnation,
    },
    /// A member says that it commits nothing more and leaves; what it wrote is acknowledged as ever. Only an epoch ends it.
    Leaving {
        /// Who.
        member: MemberId,
    },
    /// This member has joined: it holds what the others hold, and may write.
    Ready,
    /// A member that was served by a scan is served from the log again; a scan still under way can stop.
    CaughtUp {
        /// Who.
        member: MemberId,
        /// The scan that ended.
        scan: u32,
    },
}

impl Event {
    /// The member whose scan it is about, if it is about one.
    fn scanned_for(&self) -> Option<MemberId> {
        match self {
            Event::LaggingReplica { member, .. } | Event::CaughtUp { member, .. } => Some(*member),
            _ => None,
        }
    }
}

/// What the driver is still to hear of, oldest first.
#[derive(Debug)]
pub(super) struct Events {
    queue: VecDeque<Event>,
}

impl Events {
    pub(super) fn new(members: usize) -> Events {
        Events {
            queue: VecDeque::with_capacity(3 * members),
        }
    }

    /// One more. What was said of a member's scan is replaced by what is said now, so that scans that begin again do not pile up.
    pub(super) fn push(&mut self, event: Event) {
        if let Some(about) = event.scanned_for() {
            self.queue
                .retain(|event| event.scanned_for() != Some(about));
        }
        self.queue.push_back(event);
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        self.queue.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_member_s_scans_only_the_last_is_heard_of() {
        let mut events = Events::new(2);
        let scan = |member, scan| Event::LaggingReplica {
            member: MemberId(member),
            scan,
            beyond: Vec::new(),
        };
        let caught_up = Event::CaughtUp {
            member: MemberId(1),
            scan: 7,
        };
        events.push(scan(1, 7));
        events.push(Event::Ready);
        events.push(scan(2, 8));
        events.push(caught_up.clone());
        let heard: Vec<Event> = core::iter::from_fn(|| events.pop()).collect();
        assert_eq!(heard, [Event::Ready, scan(2, 8), caught_up]);
    }
}
