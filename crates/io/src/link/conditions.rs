//! What one direction of a link does to datagrams, and what it has done.

use super::SeededRandom;
use asterism_placement::Time;
use std::time::Duration;

/// The conditions of one direction of a link. Change them at any time: they hold for datagrams sent afterwards.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConditions {
    /// Time on the way, one way.
    pub delay: Duration,
    /// Up to this much more, drawn evenly per datagram. It does not reorder: a datagram waits for those before it.
    pub jitter: Duration,
    /// Probability (0 to 1) that a datagram is lost.
    pub loss: f64,
    /// Probability that a datagram arrives twice; the second copy draws its own jitter.
    pub duplication: f64,
    /// Probability that a datagram is held for up to `reordering_delay` more while later ones pass it.
    pub reordering: f64,
    /// The longest that a reordered datagram is held.
    pub reordering_delay: Duration,
    /// Bits per second of datagram bytes (headers of lower layers are not counted); `None` is unlimited.
    pub bits_per_second: Option<u64>,
    /// Bytes that may wait for the rate; what comes when they are waiting is dropped.
    pub queue_bytes_max: usize,
    /// The longest datagram in bytes; a longer one is dropped.
    pub mtu_bytes: usize,
    /// Whether this direction is cut: everything sent is dropped. What is on its way arrives.
    pub partitioned: bool,
}

impl Default for LinkConditions {
    /// A perfect link of no delay, with the room that UDP over IPv4 leaves in an Ethernet frame.
    fn default() -> LinkConditions {
        LinkConditions {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0.0,
            duplication: 0.0,
            reordering: 0.0,
            reordering_delay: Duration::ZERO,
            bits_per_second: None,
            queue_bytes_max: 256 * 1024,
            mtu_bytes: 1472,
            partitioned: false,
        }
    }
}

impl LinkConditions {
    /// A perfect link with this delay one way.
    pub fn with_delay(delay: Duration) -> LinkConditions {
        LinkConditions {
            delay,
            ..LinkConditions::default()
        }
    }
}

/// What one direction of a link has done: faults are counted when they took effect, not when they were configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStatistics {
    /// Datagrams handed to the link.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Datagrams that came out, copies included.
    pub delivered: u64,
    /// Datagrams lost by `loss`.
    pub lost: u64,
    /// Second copies made.
    pub duplicated: u64,
    /// Datagrams that came out after one that was sent later (a second copy coming late counts too).
    pub reordered: u64,
    /// Datagrams longer than the MTU, dropped.
    pub over_mtu: u64,
    /// Datagrams dropped because a queue was full: the rate's, the network's, or a threaded link's ring.
    pub queue_full: u64,
    /// Datagrams dropped because the direction was cut.
    pub partitioned: u64,
}

impl LinkStatistics {
    /// Adds another link's counts.
    pub fn add(&mut self, other: &LinkStatistics) {
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.delivered += other.delivered;
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.over_mtu += other.over_mtu;
        self.queue_full += other.queue_full;
        self.partitioned += other.partitioned;
    }

    /// Datagrams dropped, for any reason.
    pub fn dropped(&self) -> u64 {
        self.lost + self.over_mtu + self.queue_full + self.partitioned
    }
}

/// When the copies of a datagram arrive; none when it was dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// When it arrives.
    pub first: Option<Time>,
    /// When its second copy does, if it was duplicated.
    pub second: Option<Time>,
}

/// One direction of a link: decides each datagram's fate. Moving the bytes is its owner's work.
#[derive(Clone, Debug)]
pub struct Link {
    /// Change them at any time: they hold for datagrams sent afterwards.
    pub conditions: LinkConditions,
    /// What it has done.
    pub statistics: LinkStatistics,
    random: SeededRandom,
    /// When the rate has let through everything accepted so far, in nanoseconds: at 10 Gb/s a datagram takes under
    /// a microsecond.
    busy_until_ns: u64,
    /// The latest arrival so far of a datagram that keeps its place.
    in_order_until: Time,
    /// Number of the datagram last sent, and the highest that came out.
    sent_number: u64,
    delivered_number: u64,
}

impl Link {
    /// A link that has carried nothing, with the randomness of its faults.
    pub fn new(conditions: LinkConditions, random: SeededRandom) -> Link {
        Link {
            conditions,
            statistics: LinkStatistics::default(),
            random,
            busy_until_ns: 0,
            in_order_until: Time::ZERO,
            sent_number: 0,
            delivered_number: 0,
        }
    }

    /// The fate of a datagram of `bytes` bytes sent now. Calls must not go back in time. Allocates nothing.
    pub fn send(&mut self, now: Time, bytes: usize) -> Arrivals {
        self.statistics.sent += 1;
        self.statistics.sent_bytes += bytes as u64;
        self.sent_number += 1;
        if self.conditions.partitioned {
            self.statistics.partitioned += 1;
            return Arrivals::default();
        }
        if bytes > self.conditions.mtu_bytes {
            self.statistics.over_mtu += 1;
            return Arrivals::default();
        }
        let Some(departure) = self.pass_rate(now, bytes) else {
            self.statistics.queue_full += 1;
            return Arrivals::default();
        };
        // A datagram that is lost on the way has used the sender's rate.
        if self.random.chance(self.conditions.loss) {
            self.statistics.lost += 1;
            return Arrivals::default();
        }
        let mut first = self.arrival(departure);
        if self.random.chance(self.conditions.reordering) {
            let most = micros(self.conditions.reordering_delay);
            first = first + Duration::from_micros(self.random.up_to(most));
        } else {
            first = first.max(self.in_order_until);
            self.in_order_until = first;
        }
        let second = self.random.chance(self.conditions.duplication).then(|| {
            self.statistics.duplicated += 1;
            self.arrival(departure)
        });
        Arrivals {
            first: Some(first),
            second,
        }
    }

    /// The number of the datagram last sent, to be given to [`Link::delivered`].
    pub fn number(&self) -> u64 {
        self.sent_number
    }

    /// Counts a datagram that came out.
    pub fn delivered(&mut self, number: u64) {
        count_delivered(&mut self.statistics, &mut self.delivered_number, number);
    }

    fn arrival(&mut self, departure: Time) -> Time {
        let jitter = self.random.up_to(micros(self.conditions.jitter));
        departure + self.conditions.delay + Duration::from_micros(jitter)
    }

    /// When the datagram has left through the rate, or `None` when too much is waiting before it.
    fn pass_rate(&mut self, now: Time, bytes: usize) -> Option<Time> {
        let Some(rate) = self.conditions.bits_per_second else {
            return Some(now);
        };
        let rate = u128::from(rate.max(1));
        let now_ns = now.as_micros().saturating_mul(1000);
        let start_ns = self.busy_until_ns.max(now_ns);
        let waiting_bytes = u128::from(start_ns - now_ns) * rate / 8_000_000_000;
        if waiting_bytes + bytes as u128 > self.conditions.queue_bytes_max.max(bytes) as u128 {
            return None;
        }
        let takes_ns = u64::try_from(bytes as u128 * 8_000_000_000 / rate).unwrap_or(u64::MAX);
        self.busy_until_ns = start_ns.saturating_add(takes_ns);
        Some(Time::from_micros(self.busy_until_ns.div_ceil(1000)))
    }
}

/// Counts a datagram that came out of a link, given the highest number that did before.
pub(super) fn count_delivered(statistics: &mut LinkStatistics, highest: &mut u64, number: u64) {
    statistics.delivered += 1;
    if number < *highest {
        statistics.reordered += 1;
    }
    *highest = number.max(*highest);
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
