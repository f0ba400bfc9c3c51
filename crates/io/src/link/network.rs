//! Any number of hosts joined by links, driven by one caller with a virtual clock.

use super::conditions::Link;
use super::{LinkConditions, LinkStatistics, SeededRandom};
use asterism_placement::Time;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// The most datagrams on their way in a [`Network`]; more are dropped as if a queue were full.
pub const DATAGRAMS_IN_FLIGHT_MAX: usize = 1 << 20;
/// Buffers kept for use again.
const SPARE_BUFFERS_MAX: usize = 4096;

/// Links between every pair of hosts, each direction with its own conditions and its own randomness.
///
/// The same seed and the same calls give the same deliveries; what one link carries does not change another's faults.
/// Hosts are numbers of the caller's choosing; a pair's link exists from its first use, with the default conditions of
/// that moment.
#[derive(Debug)]
pub struct Network {
    seed: u64,
    defaults: LinkConditions,
    links: BTreeMap<(u16, u16), Link>,
    /// Earliest first; those of one moment in the order in which they were sent.
    in_flight: BinaryHeap<Reverse<Datagram>>,
    sent: u64,
    spare: Vec<Vec<u8>>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Datagram {
    due: Time,
    order: u64,
    from: u16,
    to: u16,
    number: u64,
    bytes: Vec<u8>,
}

impl Network {
    /// A network without hosts; links begin perfect ([`LinkConditions::default`]).
    pub fn new(seed: u64) -> Network {
        Network {
            seed,
            defaults: LinkConditions::default(),
            links: BTreeMap::new(),
            in_flight: BinaryHeap::new(),
            sent: 0,
            spare: Vec::new(),
        }
    }

    /// The conditions that links begin with, from now on.
    pub fn set_defaults(&mut self, conditions: LinkConditions) {
        self.defaults = conditions;
    }

    /// The conditions of the link from `from` to `to`, to change. The way back is another link.
    pub fn link_mut(&mut self, from: u16, to: u16) -> &mut LinkConditions {
        &mut self.link(from, to).conditions
    }

    /// Changes the conditions of every link that exists, and of those to come.
    pub fn change_all(&mut self, mut change: impl FnMut(&mut LinkConditions)) {
        change(&mut self.defaults);
        self.links
            .values_mut()
            .for_each(|link| change(&mut link.conditions));
    }

    /// Cuts (or joins) every link from a host of `from` to one of `to`, in that direction only.
    pub fn set_partitioned(&mut self, from: &[u16], to: &[u16], partitioned: bool) {
        for &from in from {
            for &to in to {
                if from != to {
                    self.link_mut(from, to).partitioned = partitioned;
                }
            }
        }
    }

    /// Sends a copy of `bytes`; returns whether it was accepted (it may be lost all the same, as with any datagram:
    /// a sender must not act on this). Allocates only when no buffer was recycled.
    pub fn send(&mut self, now: Time, from: u16, to: u16, bytes: &[u8]) -> bool {
        let full = self.in_flight.len() + 2 > DATAGRAMS_IN_FLIGHT_MAX;
        let link = self.link(from, to);
        let arrivals = link.send(now, bytes.len());
        let number = link.number();
        if full && arrivals.first.is_some() {
            link.statistics.queue_full += 1;
            link.statistics.duplicated -= u64::from(arrivals.second.is_some());
            return false;
        }
        for due in [arrivals.first, arrivals.second].into_iter().flatten() {
            let mut buffer = self.spare.pop().unwrap_or_default();
            buffer.clear();
            buffer.extend_from_slice(bytes);
            self.sent += 1;
            self.in_flight.push(Reverse(Datagram {
                due,
                order: self.sent,
                from,
                to,
                number,
                bytes: buffer,
            }));
        }
        arrivals.first.is_some()
    }

    /// Sends a copy to each of `to` except the sender, each with its own faults.
    pub fn multicast(
        &mut self,
        now: Time,
        from: u16,
        to: impl IntoIterator<Item = u16>,
        bytes: &[u8],
    ) {
        for to in to {
            if to != from {
                self.send(now, from, to, bytes);
            }
        }
    }

    /// When the next datagram arrives; `None` when none is on its way.
    pub fn next_delivery(&self) -> Option<Time> {
        self.in_flight.peek().map(|Reverse(datagram)| datagram.due)
    }

    /// When the last datagram that is on its way from `from` to `to` arrives; `None` when none is. Looks at all that are on their
    /// way, wherever to.
    pub fn last_delivery(&self, from: u16, to: u16) -> Option<Time> {
        let on_the_link = |datagram: &&Datagram| (datagram.from, datagram.to) == (from, to);
        let in_flight = self.in_flight.iter().map(|Reverse(datagram)| datagram);
        in_flight.filter(on_the_link).map(|one| one.due).max()
    }

    /// When the last of all datagrams arrives that are on their way; `None` when none is. Looks at all of them.
    pub fn last_arrival(&self) -> Option<Time> {
        let in_flight = self.in_flight.iter().map(|Reverse(datagram)| datagram);
        in_flight.map(|one| one.due).max()
    }

    /// The next datagram that has arrived by `now`: from, to, bytes. Give the buffer back with [`Network::recycle`].
    pub fn receive(&mut self, now: Time) -> Option<(u16, u16, Vec<u8>)> {
        if self.next_delivery()? > now {
            return None;
        }
        let Reverse(datagram) = self.in_flight.pop()?;
        self.link(datagram.from, datagram.to)
            .delivered(datagram.number);
        Some((datagram.from, datagram.to, datagram.bytes))
    }

    /// Takes a buffer back for use again.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS_MAX {
            self.spare.push(buffer);
        }
    }

    /// Forgets what is on its way to `host`, as its crash does; returns how many datagrams.
    pub fn forget_arrivals(&mut self, host: u16) -> usize {
        let before = self.in_flight.len();
        self.in_flight
            .retain(|Reverse(datagram)| datagram.to != host);
        before - self.in_flight.len()
    }

    /// Forgets what `host` sent and has not arrived, as a crash does with what its interface still holds; returns how many datagrams.
    pub fn forget_departures(&mut self, host: u16) -> usize {
        let before = self.in_flight.len();
        self.in_flight
            .retain(|Reverse(datagram)| datagram.from != host);
        before - self.in_flight.len()
    }

    /// How many datagrams are on their way.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Counts of the link from `from` to `to`.
    pub fn statistics(&self, from: u16, to: u16) -> LinkStatistics {
        self.links
            .get(&(from, to))
            .map(|link| link.statistics)
            .unwrap_or_default()
    }

    /// Counts of all links together.
    pub fn statistics_total(&self) -> LinkStatistics {
        let mut total = LinkStatistics::default();
        self.links
            .values()
            .for_each(|link| total.add(&link.statistics));
        total
    }

    fn link(&mut self, from: u16, to: u16) -> &mut Link {
        let (seed, defaults) = (self.seed, &self.defaults);
        self.links.entry((from, to)).or_insert_with(|| {
            // A sequence of its own for each link: SplitMix64 mixes neighbouring seeds well apart after one draw.
            let pair = u64::from(from) << 16 | u64::from(to);
            let mixed = SeededRandom::new(seed).next_u64() ^ SeededRandom::new(pair).next_u64();
            Link::new(defaults.clone(), SeededRandom::new(mixed))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(micros: u64) -> Time {
        Time::from_micros(micros)
    }

    /// Receives everything, with the time of each.
    fn drain(network: &mut Network) -> Vec<(u64, u16, u16, Vec<u8>)> {
        let mut all = Vec::new();
        while let Some(due) = network.next_delivery() {
            let (from, to, bytes) = network.receive(due).unwrap();
            all.push((due.as_micros(), from, to, bytes.clone()));
            network.recycle(bytes);
        }
        all
    }

    #[test]
    fn a_perfect_link_keeps_order_and_its_delay() {
        let mut network = Network::new(1);
        network.link_mut(1, 2).delay = Duration::from_millis(40);
        for value in 0..10u8 {
            assert!(network.send(at(u64::from(value)), 1, 2, &[value]));
        }
        assert!(network.receive(at(39_999)).is_none());
        let all = drain(&mut network);
        for (value, delivery) in all.iter().enumerate() {
            assert_eq!(*delivery, (40_000 + value as u64, 1, 2, vec![value as u8]));
        }
        assert_eq!(network.statistics(1, 2).delivered, 10);
        assert_eq!(network.statistics(1, 2).dropped(), 0);
        assert_eq!(network.statistics(2, 1), LinkStatistics::default());
    }

    #[test]
    fn jitter_alone_never_reorders() {
        let mut network = Network::new(2);
        network.link_mut(0, 1).jitter = Duration::from_millis(5);
        for value in 0..200u8 {
            network.send(at(u64::from(value) * 100), 0, 1, &[value]);
        }
        let all = drain(&mut network);
        assert!(all.windows(2).all(|pair| pair[0].3 < pair[1].3));
        assert!(
            all.iter()
                .any(|delivery| delivery.0 > 100 * u64::from(delivery.3[0]) + 1000)
        );
        assert_eq!(network.statistics(0, 1).reordered, 0);
    }

    #[test]
    fn faults_are_counted_when_they_took_effect() {
        let mut network = Network::new(3);
        *network.link_mut(0, 1) = LinkConditions {
            delay: Duration::from_millis(1),
            loss: 0.1,
            duplication: 0.1,
            reordering: 0.1,
            reordering_delay: Duration::from_millis(3),
            ..LinkConditions::default()
        };
        for number in 0..10_000u32 {
            network.send(at(u64::from(number) * 100), 0, 1, &number.to_le_bytes());
        }
        let all = drain(&mut network);
        let statistics = network.statistics(0, 1);
        assert_eq!(statistics.delivered as usize, all.len());
        assert_eq!(statistics.sent, 10_000);
        assert_eq!(
            statistics.delivered,
            statistics.sent - statistics.lost + statistics.duplicated
        );
        assert!((800..1200).contains(&statistics.lost), "{statistics:?}");
        assert!(
            (700..1100).contains(&statistics.duplicated),
            "{statistics:?}"
        );
        // Some are held for less than the next takes to come: not reordered.
        assert!(
            (500..1200).contains(&statistics.reordered),
            "{statistics:?}"
        );
    }

    #[test]
    fn the_rate_spaces_datagrams_and_its_queue_is_bounded() {
        let mut network = Network::new(4);
        *network.link_mut(0, 1) = LinkConditions {
            bits_per_second: Some(8_000_000),
            queue_bytes_max: 10_000,
            ..LinkConditions::default()
        };
        for value in 0..20u8 {
            network.send(Time::ZERO, 0, 1, &[value; 1000]);
        }
        // The rest did not fit the queue, and nothing goes the other way.
        assert_eq!(network.last_delivery(0, 1), Some(at(10_000)));
        assert_eq!(network.last_delivery(1, 0), None);
        assert_eq!(network.last_arrival(), Some(at(10_000)));
        let all = drain(&mut network);
        assert_eq!(network.last_delivery(0, 1), None);
        assert_eq!(
            all.iter().map(|delivery| delivery.0).collect::<Vec<_>>(),
            (1..=10).map(|n| n * 1000).collect::<Vec<_>>()
        );
        assert_eq!(network.statistics(0, 1).queue_full, 10);
        // At a rate of nothing at all time still saturates.
        network.link_mut(0, 1).bits_per_second = Some(0);
        network.send(Time::MAX, 0, 1, &[0; 1000]);
    }

    #[test]
    fn a_cut_has_one_direction_and_the_mtu_holds() {
        let mut network = Network::new(5);
        network.set_partitioned(&[0], &[1, 2], true);
        network.multicast(Time::ZERO, 0, 0..4, b"cut");
        network.multicast(Time::ZERO, 1, 0..4, b"whole");
        assert!(!network.send(Time::ZERO, 3, 0, &[0; 1473]));
        let arrived: Vec<(u16, u16)> = drain(&mut network)
            .iter()
            .map(|delivery| (delivery.1, delivery.2))
            .collect();
        assert_eq!(arrived, [(0, 3), (1, 0), (1, 2), (1, 3)]);
        let total = network.statistics_total();
        assert_eq!(
            (total.partitioned, total.over_mtu, total.dropped()),
            (2, 1, 3)
        );
        network.set_partitioned(&[0], &[1, 2], false);
        network.multicast(Time::ZERO, 0, 0..3, b"healed");
        assert_eq!(network.forget_arrivals(1), 1);
        assert_eq!(drain(&mut network).len(), 1);
    }

    fn run(seed: u64, busy_elsewhere: bool) -> Vec<(u64, u16, u16, Vec<u8>)> {
        let mut network = Network::new(seed);
        network.set_defaults(LinkConditions {
            jitter: Duration::from_millis(2),
            loss: 0.2,
            duplication: 0.2,
            reordering: 0.2,
            reordering_delay: Duration::from_millis(9),
            ..LinkConditions::default()
        });
        for number in 0..300u32 {
            network.send(at(u64::from(number) * 50), 0, 1, &number.to_le_bytes());
            if busy_elsewhere {
                network.send(at(u64::from(number) * 50), 1, 0, b"more");
            }
        }
        drain(&mut network)
            .into_iter()
            .filter(|delivery| delivery.2 == 1)
            .collect()
    }

    #[test]
    fn a_seed_replays_and_links_do_not_disturb_each_other() {
        assert_eq!(run(9, false), run(9, false));
        assert_eq!(run(9, false), run(9, true));
        assert_ne!(run(9, false), run(10, false));
    }
}
