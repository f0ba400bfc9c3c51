//! What protocols report: what of it goes to instances, and what the host hears of it.

use std::collections::VecDeque;

use asterism_placement::replicated::audit::{AuditResult, StreamFault};
use asterism_placement::replicated::{Event, Standing};
use asterism_placement::{Epoch, Incarnation, MemberId};
use asterism_secure_channel::Event as SealEvent;

use super::StateChannel;
use super::protocols::ProtocolEvent;
use super::scans::SnapshotScan;
use crate::exchange::{Down, SCAN_PARTS, origin};

/// What a state channel tells its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelEvent {
    /// Of the sealed channel: admissions, duplicate identities.
    Secure(SealEvent),
    /// A member fell off the log and is served by a scan over the tables.
    LaggingReplica(MemberId),
    /// It is served from the log again.
    CaughtUp(MemberId),
    /// A member is sent a snapshot for another reason than lagging: it joins, or lacks something of an incarnation that ended.
    Served(MemberId),
    /// An epoch is in force.
    Epoch(Epoch),
    /// A member has a later epoch in force than this host, which grants nothing and soon handles no packets until it has that one.
    LaterEpoch(MemberId, Epoch),
    /// It ended this incarnation of a member.
    Ended(MemberId, Incarnation),
    /// All members have the same of that incarnation.
    Closed(MemberId, Incarnation),
    /// A member says that it commits nothing more and leaves.
    Leaving(MemberId),
    /// This host has joined.
    Ready,
    /// Parts of the tables differ from the reference's, or are equal again.
    Audit(AuditResult),
    /// Groups of a member were not delivered as they were sent.
    Stream(StreamFault),
}

/// Events kept for the host at most.
pub(super) const EVENTS_MAX: usize = 256;

impl StateChannel {
    pub(super) fn note(&mut self, event: ChannelEvent) {
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(event);
        } else {
            self.tally.events_lost += 1;
        }
    }

    pub(super) fn handle_event(&mut self, event: ProtocolEvent) {
        match event {
            ProtocolEvent::Replication(event) => self.handle_replication(event),
            ProtocolEvent::Audit(event) => self.handle_audit(event),
            ProtocolEvent::Home(event) => self.handle_home(&event),
        }
    }

    fn handle_replication(&mut self, event: Event) {
        match event {
            Event::LaggingReplica { member, scan, .. } => {
                self.scans.retain(|known| known.member != member);
                self.scans.push(SnapshotScan {
                    member,
                    scan,
                    parts: VecDeque::new(),
                    room: SCAN_PARTS,
                    done: false,
                });
                self.outlet.push(&Down::SnapshotScan { member, scan });
                let progress = self.protocols.replicator.progress().member(member);
                let lags = progress.is_none_or(|progress| {
                    progress.standing == Standing::Imaging && !progress.joining
                });
                self.note(if lags {
                    ChannelEvent::LaggingReplica(member)
                } else {
                    ChannelEvent::Served(member)
                });
            }
            Event::CaughtUp { member, scan } => {
                self.scans.retain(|known| known.member != member);
                self.outlet.push(&Down::StopScan { member, scan });
                self.note(ChannelEvent::CaughtUp(member));
            }
            Event::Ended {
                member,
                incarnation,
            } => {
                let origin = origin(member, incarnation);
                self.ended.push(origin);
                self.outlet.push(&Down::Ended { origin });
                self.note(ChannelEvent::Ended(member, incarnation));
            }
            Event::Closed {
                member,
                incarnation,
            } => {
                let origin = origin(member, incarnation);
                self.outlet.push(&Down::Closed { origin });
                self.note(ChannelEvent::Closed(member, incarnation));
            }
            Event::Leaving { member } => self.note(ChannelEvent::Leaving(member)),
            Event::Ready => {
                self.outlet.push(&Down::Ready);
                self.note_ready();
                self.note(ChannelEvent::Ready);
            }
            Event::Heard { .. } => {}
        }
    }
}
