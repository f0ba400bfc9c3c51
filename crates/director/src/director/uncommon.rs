//! The long path of a frame: everything but plain packets in buckets with one target.

use asterism_io::frame::Frame;
use asterism_packet::{IcmpKind, Network, Packet, TcpFlags, Transport};
use asterism_placement::Time;
use core::time::Duration;

use super::{Director, ETHERNET, ETHERTYPE_HEARTBEAT};
use crate::addresses::{Asked, FRAME_BYTES_MAX};
use crate::drop::DirectorDrop;
use crate::exceptions::Place;
use crate::flow::{self, FRAGMENTS_TIME, Flow};
use crate::suspended::{Queue, Suspend};
use crate::table::{Bucket, Slot};

/// How long a flow may idle before the exception ends that a drain or a suspension made for it: as long as an established connection
/// may (RFC 5382, REQ-5: 2 hours 4 minutes).
pub(super) const FLOW_IDLE: Duration = Duration::from_secs(2 * 3_600 + 4 * 60);

/// What becomes of a frame.
enum Fate {
    /// It goes to a target.
    Send(Slot),
    /// It waits.
    Hold(Queue),
    /// It was for the director itself.
    Consume,
    /// It was a question; the answer has so many bytes.
    Answer(usize),
    /// It is dropped.
    Drop(DirectorDrop),
}

impl Director {
    /// Handles a frame that arrived at an arm. What is to be sent to a host is in `out` afterwards.
    #[inline(never)]
    pub(super) fn handle_other(&mut self, number: usize, mut frame: Frame, now: Time) {
        let mut answer = [0; FRAME_BYTES_MAX];
        match self.fate(number, &mut frame, &mut answer, now) {
            Fate::Send(slot) => self.forward(number, frame, slot),
            Fate::Hold(queue) => {
                let to = self.arms.get(number).and_then(|arm| arm.sends_to);
                match self.suspended.hold(queue, frame, to.unwrap_or(number)) {
                    Ok(()) => self.tally.suspended += 1,
                    Err((frame, reason)) => self.drop_frame(frame, reason),
                }
            }
            Fate::Consume => {
                self.tally.consumed += 1;
                self.pool.release(frame);
            }
            Fate::Answer(length) => {
                self.tally.consumed += 1;
                self.pool.release(frame);
                let is_sent = self.send_own(number, answer.get(..length).unwrap_or(&[]));
                self.tally.answered += u64::from(is_sent);
            }
            Fate::Drop(reason) => self.drop_frame(frame, reason),
        }
    }

    fn forward(&mut self, number: usize, mut frame: Frame, slot: Slot) {
        let to = self.arms.get(number).and_then(|arm| arm.sends_to);
        let Some(to) = to else {
            return self.drop_frame(frame, DirectorDrop::ArmSteersNothing);
        };
        if !self.hosts.has(slot) {
            return self.drop_frame(frame, DirectorDrop::NoTarget);
        }
        if !self.address(&mut frame, to, slot) {
            return self.drop_frame(frame, DirectorDrop::TargetUnresolved);
        }
        self.tally.forwarded += 1;
        self.sent[slot.number()] += 1;
        if let Err(frame) = self.out.push(frame) {
            self.send_out(to);
            self.send_one(to, frame);
        }
    }

    fn fate(&mut self, number: usize, frame: &mut Frame, answer: &mut [u8], now: Time) -> Fate {
        let Some(arm) = self.arms.get_mut(number) else {
            return Fate::Drop(DirectorDrop::ArmSteersNothing);
        };
        let bytes = self.pool.bytes_mut(frame);
        let packet = match Packet::parse(bytes) {
            Ok(packet) => packet,
            Err(_) => return Fate::Drop(DirectorDrop::Malformed),
        };
        let layout = *packet.layout();
        match layout.network() {
            // Answers would go without the tags.
            Network::Arp if layout.vlan_tags() > 0 => return Fate::Consume,
            Network::Arp => {
                if let Some(arp) = packet.arp()
                    && self.hosts.learn(number, &arp, now)
                {
                    self.tally.hosts_learnt += 1;
                    return Fate::Consume;
                }
                let asked = match self.is_active {
                    true => arm.addresses.arp(&packet, answer),
                    false => Asked::Nothing,
                };
                return self.answer(asked);
            }
            Network::Other
                if packet.ethertype() == ETHERTYPE_HEARTBEAT && layout.vlan_tags() == 0 =>
            {
                return self.take_heartbeat(number, frame, now);
            }
            Network::Ipv6 if is_neighbour_discovery(&packet) => {
                let asked = match self.is_active && layout.vlan_tags() == 0 {
                    true => arm.addresses.solicitation(&packet, answer),
                    false => Asked::Nothing,
                };
                return self.answer(asked);
            }
            Network::Ipv4 | Network::Ipv6 | Network::Other => {}
        }
        if packet.ethernet_destination() != arm.mac {
            return Fate::Drop(DirectorDrop::OtherStation);
        }
        if arm.sends_to.is_none() {
            return Fate::Drop(DirectorDrop::ArmSteersNothing);
        }
        let hash = match arm.hash.of(&packet) {
            Ok(Flow::Hash(hash)) => hash,
            Ok(Flow::First(hash)) => {
                let key = flow::key_of(&packet);
                match self.fragments.insert(key, hash, FRAGMENTS_TIME, now) {
                    Ok(_) => hash,
                    Err(_) => return Fate::Drop(DirectorDrop::FragmentTableFull),
                }
            }
            Ok(Flow::Later) => match self.fragments.find(&flow::key_of(&packet), now) {
                Some(hash) => hash,
                None => return Fate::Drop(DirectorDrop::FragmentWithoutFirst),
            },
            Err(reason) => return Fate::Drop(reason),
        };
        let bucket = self.table.space().bucket(hash);
        if let Some(count) = self.counts.get_mut(bucket as usize) {
            *count = count.saturating_add(1);
        }
        if !self.exceptions.is_empty()
            && let Some(place) = self.exceptions.find(&flow::key_of(&packet), now)
        {
            match place {
                Place::Target(slot) if self.table.serves(slot) => return Fate::Send(slot),
                // Its target is out.
                Place::Target(_) => {}
                Place::Suspended(queue) => return Fate::Hold(queue),
            }
        }
        match self.table.bucket(bucket) {
            Bucket::Target(slot) => Fate::Send(slot),
            Bucket::Nobody => Fate::Drop(DirectorDrop::NoTarget),
            Bucket::Suspended => match self.suspended.find(&Suspend::Bucket(bucket)) {
                Some(queue) => Fate::Hold(queue),
                None => Fate::Drop(DirectorDrop::SuspendedTooLong),
            },
            Bucket::Draining { to, from } => {
                let key = flow::key_of(&packet);
                let flags = packet.tcp_flags();
                match flags {
                    // A connection that begins, or the answer to one in the other direction.
                    Some(flags) if flags.contains(TcpFlags::SYN) => {
                        let place = Place::Target(to);
                        match self.exceptions.set(key, place, FLOW_IDLE, now) {
                            Ok(()) => {
                                self.tally.drain_exceptions += 1;
                                Fate::Send(to)
                            }
                            Err(_) => {
                                self.tally.drain_refused += 1;
                                Fate::Send(from)
                            }
                        }
                    }
                    Some(_) => Fate::Send(from),
                    None => Fate::Send(to),
                }
            }
        }
    }

    fn answer(&mut self, asked: Asked) -> Fate {
        match asked {
            Asked::Answer(length) => Fate::Answer(length),
            Asked::Conflict => {
                self.tally.conflicts += 1;
                Fate::Consume
            }
            Asked::Nothing => Fate::Consume,
        }
    }

    fn take_heartbeat(&mut self, number: usize, frame: &Frame, now: Time) -> Fate {
        let bytes = self.pool.bytes(frame).get(ETHERNET..).unwrap_or(&[]);
        let taken = match &mut self.pair {
            Some((arm, pair)) if *arm == number => pair.handle(now, bytes).is_ok(),
            _ => false,
        };
        if !taken {
            return Fate::Drop(DirectorDrop::HeartbeatRefused);
        }
        self.tally.heartbeats_received += 1;
        self.follow_pair(now);
        self.due = now;
        Fate::Consume
    }
}

/// Neighbour discovery and router discovery (RFC 4861): messages between the stations of a link, never forwarded.
fn is_neighbour_discovery(packet: &Packet<'_>) -> bool {
    packet.layout().transport() == Transport::Icmpv6
        && packet.icmp_kind() != Some(IcmpKind::Error)
        && packet
            .icmp_type()
            .is_some_and(|kind| (133..=137).contains(&kind))
}
