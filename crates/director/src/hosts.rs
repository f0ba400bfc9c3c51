//! The hosts behind the slots: their Ethernet addresses on each arm, configured or learnt by ARP.
//!
//! An address is learnt only from the answer to a question of ours, and kept until another answer says otherwise: whether a host
//! is alive is decided elsewhere. A host without a known address takes no packets. The state is one station for each slot and
//! arm.

use core::net::Ipv4Addr;
use core::time::Duration;

use asterism_packet::{Arp, ArpOperation, MacAddress, build};
use asterism_placement::Time;

use crate::config::ARMS_MAX;
use crate::table::{Slot, TARGETS_MAX};

/// Time between two questions for an address that is not known.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two questions for one that was learnt.
pub const REFRESH_INTERVAL: Duration = Duration::from_secs(30);
/// How long after a question its answer is believed.
const ANSWER_TIME: Duration = Duration::from_secs(3);

/// How a host is reached on one arm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HostLink {
    /// Its Ethernet address, if it is configured.
    pub mac: Option<MacAddress>,
    /// Its own IPv4 address, by which the Ethernet address is learnt otherwise.
    pub address: Option<Ipv4Addr>,
}

/// A host that may be a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Host {
    /// How it is reached on each arm, by the arm's number.
    pub links: [HostLink; ARMS_MAX],
}

impl Host {
    /// A host that is reached on the first arm alone.
    #[must_use]
    pub fn on_first_arm(link: HostLink) -> Host {
        let mut links = [HostLink::default(); ARMS_MAX];
        links[0] = link;
        Host { links }
    }
}

/// The Ethernet addresses of frames to a host by an arm: the first twelve bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(16))]
pub(crate) struct Addressed {
    pub(crate) ethernet: [u8; 12],
    pub(crate) is_known: bool,
}

/// What is known of a host on an arm.
#[derive(Clone, Copy, Debug, Default)]
struct Station {
    is_used: bool,
    is_configured: bool,
    address: Option<Ipv4Addr>,
    asked: Option<Time>,
    due: Time,
}

/// All hosts.
#[derive(Debug)]
pub(crate) struct Hosts {
    macs: [MacAddress; ARMS_MAX],
    own: [Option<Ipv4Addr>; ARMS_MAX],
    addressed: Box<[[Addressed; TARGETS_MAX]; ARMS_MAX]>,
    stations: Box<[[Station; TARGETS_MAX]; ARMS_MAX]>,
    next_due: Option<Time>,
}

impl Hosts {
    /// No hosts; each arm's Ethernet address and the IPv4 address that it asks with.
    pub(crate) fn new(arms: &[(MacAddress, Option<Ipv4Addr>)]) -> Hosts {
        let mut hosts = Hosts {
            macs: [MacAddress::default(); ARMS_MAX],
            own: [None; ARMS_MAX],
            addressed: Box::new([[Addressed::default(); TARGETS_MAX]; ARMS_MAX]),
            stations: Box::new([[Station::default(); TARGETS_MAX]; ARMS_MAX]),
            next_due: None,
        };
        let places = hosts.macs.iter_mut().zip(&mut hosts.own);
        for ((mac, own), arm) in places.zip(arms) {
            (*mac, *own) = *arm;
        }
        hosts
    }

    /// The Ethernet addresses of frames to a host by an arm.
    #[inline(always)]
    pub(crate) fn addressed(&self, arm: usize, slot: Slot) -> Addressed {
        match self.addressed.get(arm) {
            Some(arm) => arm[slot.number() % TARGETS_MAX],
            None => Addressed::default(),
        }
    }

    /// Puts a host into a slot, or changes it: what was learnt under another address is forgotten.
    pub(crate) fn set(&mut self, slot: Slot, host: &Host, now: Time) {
        for arm in 0..ARMS_MAX {
            let link = host.links[arm];
            let station = &mut self.stations[arm][slot.number()];
            let stays = station.is_used
                && !station.is_configured
                && link.mac.is_none()
                && station.address == link.address;
            if stays {
                continue;
            }
            *station = Station {
                is_used: true,
                is_configured: link.mac.is_some(),
                address: link.address,
                asked: None,
                due: now,
            };
            self.address(arm, slot, link.mac);
        }
        self.reckon_due();
    }

    /// Empties a slot.
    pub(crate) fn remove(&mut self, slot: Slot) {
        for arm in 0..ARMS_MAX {
            self.stations[arm][slot.number()] = Station::default();
            self.address(arm, slot, None);
        }
        self.reckon_due();
    }

    /// Whether a slot has a host.
    pub(crate) fn has(&self, slot: Slot) -> bool {
        self.stations[0][slot.number()].is_used
    }

    /// Whether a slot's host can be reached on an arm.
    pub(crate) fn is_known(&self, arm: usize, slot: Slot) -> bool {
        self.addressed(arm, slot).is_known
    }

    fn address(&mut self, arm: usize, slot: Slot, mac: Option<MacAddress>) {
        let mut addressed = Addressed::default();
        if let Some(mac) = mac {
            addressed.ethernet[..6].copy_from_slice(&mac.0);
            addressed.ethernet[6..].copy_from_slice(&self.macs[arm].0);
            addressed.is_known = true;
        }
        self.addressed[arm][slot.number()] = addressed;
    }

    /// Learns from an ARP packet; whether it answered a question.
    pub(crate) fn learn(&mut self, arm: usize, arp: &Arp, now: Time) -> bool {
        let is_answer = arp.operation == ArpOperation::Reply
            && arp.target_mac == self.macs[arm]
            && !arp.sender_mac.is_multicast()
            && arp.sender_mac != MacAddress::default()
            && arp.sender_mac != self.macs[arm];
        if !is_answer {
            return false;
        }
        let mut is_learnt = false;
        for number in 0..TARGETS_MAX {
            let station = &mut self.stations[arm][number];
            let asked = station
                .asked
                .filter(|asked| now.since(*asked) <= ANSWER_TIME);
            if station.address != Some(arp.sender) || station.is_configured || asked.is_none() {
                continue;
            }
            station.asked = None;
            station.due = now.saturating_add(REFRESH_INTERVAL);
            if let Some(slot) = Slot::new(number) {
                self.address(arm, slot, Some(arp.sender_mac));
            }
            is_learnt = true;
        }
        if is_learnt {
            self.reckon_due();
        }
        is_learnt
    }

    /// When the next question is due.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.next_due
    }

    /// The next question that is due, written into `out`: the arm to send it by and its length.
    pub(crate) fn next_probe(&mut self, now: Time, out: &mut [u8]) -> Option<(usize, usize)> {
        if self.next_due.is_none_or(|due| now < due) {
            return None;
        }
        for arm in 0..ARMS_MAX {
            for station in &mut self.stations[arm] {
                let Some(address) = station.address.filter(|_| is_asked_for(station)) else {
                    continue;
                };
                if now < station.due {
                    continue;
                }
                station.asked = Some(now);
                station.due = now.saturating_add(PROBE_INTERVAL);
                let own = self.own[arm].unwrap_or(Ipv4Addr::UNSPECIFIED);
                let length = build::arp_request(self.macs[arm], own, address, out)?;
                return Some((arm, length));
            }
        }
        self.reckon_due();
        None
    }

    fn reckon_due(&mut self) {
        let stations = self.stations.iter().flatten();
        let asked_for = stations.filter(|station| is_asked_for(station));
        self.next_due = asked_for.map(|station| station.due).min();
    }
}

fn is_asked_for(station: &Station) -> bool {
    station.is_used && !station.is_configured && station.address.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_packet::Packet;

    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const HOST: MacAddress = MacAddress([2, 0, 0, 0, 0, 5]);
    const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 5);

    fn reply(question: &mut [u8], mac: MacAddress) -> Arp {
        let asked = Packet::parse(question).unwrap().arp().unwrap();
        let mut out = [0; 64];
        let length = build::arp_reply(&asked, mac, &mut out).unwrap();
        Packet::parse(&mut out[..length]).unwrap().arp().unwrap()
    }

    #[test]
    fn only_answers_teach_and_they_are_asked_for_again() {
        let mut hosts = Hosts::new(&[(MAC, Some(OWN))]);
        let slot = Slot::new(3).unwrap();
        let link = HostLink {
            mac: None,
            address: Some(ADDRESS),
        };
        hosts.set(slot, &Host::on_first_arm(link), Time::ZERO);
        assert!(hosts.has(slot) && !hosts.is_known(0, slot));
        let mut out = [0; 64];
        let (arm, length) = hosts.next_probe(Time::ZERO, &mut out).unwrap();
        assert_eq!((arm, length), (0, 42));
        assert_eq!(hosts.next_probe(Time::ZERO, &mut [0; 64]), None);
        let answer = reply(&mut out[..length], HOST);
        let late = Time::ZERO.saturating_add(ANSWER_TIME + PROBE_INTERVAL);
        assert!(!hosts.learn(0, &answer, late), "too late");
        assert!(hosts.learn(0, &answer, Time::from_micros(10)));
        let addressed = hosts.addressed(0, slot);
        assert!(addressed.is_known);
        assert_eq!(addressed.ethernet[..6], HOST.0);
        assert_eq!(addressed.ethernet[6..], MAC.0);
        let other = reply(&mut out[..length], MacAddress([2; 6]));
        assert!(!hosts.learn(0, &other, Time::from_micros(20)), "not asked");

        let due = hosts.next_due().unwrap();
        assert_eq!(due.since(Time::from_micros(10)), REFRESH_INTERVAL);
        assert!(hosts.next_probe(due, &mut out).is_some());
        assert!(hosts.learn(0, &other, due), "it has moved");
        assert_eq!(hosts.addressed(0, slot).ethernet[..6], [2; 6]);

        // The same again changes nothing; a configured address is not asked for.
        hosts.set(slot, &Host::on_first_arm(link), due);
        assert!(hosts.is_known(0, slot));
        let configured = HostLink {
            mac: Some(HOST),
            address: Some(ADDRESS),
        };
        hosts.set(slot, &Host::on_first_arm(configured), due);
        assert_eq!(hosts.next_due(), None);
        assert_eq!(hosts.addressed(0, slot).ethernet[..6], HOST.0);
        hosts.remove(slot);
        assert!(!hosts.has(slot) && !hosts.is_known(0, slot));
        assert!(!hosts.is_known(ARMS_MAX, slot));
    }
}
