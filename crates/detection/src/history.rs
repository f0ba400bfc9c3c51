//! The history of one source's probes: small sketches that join.
//!
//! A history holds two windows of time, each a few sets of ports and hosts. A set is 64 bits (`bits.rs`). Sizes are estimated
//! by linear counting (Whang et al. 1990): exact to one up to about ten, within a fifth up to a hundred, saturated beyond
//! some two hundred.

use asterism_function::{BadBytes, Host, Key, Reader, Value, Wire, Writer, layout};

use crate::bits::estimate;

/// What kind of probing a history is about: one source has up to four histories.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Wire)]
#[repr(u8)]
pub enum Class {
    /// TCP segments that open, or pretend to.
    Tcp = 0,
    /// Unsolicited UDP datagrams.
    Udp = 1,
    /// ICMP and ICMPv6 queries.
    Icmp = 2,
    /// Unsolicited packets of other IP protocols. Their numbers stand where others have ports.
    Ip = 3,
}

/// Whose history of which class.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Wire)]
pub struct Scanner {
    /// The source of the probes.
    pub host: Host,
    /// Their class.
    pub class: Class,
}

impl Key for Scanner {
    #[inline(always)]
    fn hash(&self, seed: u64) -> u64 {
        self.host.hash(seed ^ (self.class as u64 + 1) << 56)
    }
}

/// The ways of probing that were seen, a set: for the operator, not for the decision.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Wire)]
pub struct Methods(pub u16);

impl Methods {
    /// TCP SYN: half-open or connecting scans.
    pub const SYN: Self = Self(1);
    /// TCP FIN without ACK.
    pub const FIN: Self = Self(2);
    /// TCP without any flag.
    pub const NULL: Self = Self(4);
    /// TCP FIN, PSH and URG, or another set of flags that no connection has.
    pub const XMAS: Self = Self(8);
    /// TCP ACK to connections that do not exist.
    pub const ACK: Self = Self(16);
    /// UDP datagrams.
    pub const UDP: Self = Self(32);
    /// ICMP queries.
    pub const PING: Self = Self(64);
    /// Packets of IP protocols that are in little use.
    pub const PROTOCOLS: Self = Self(128);
    /// TCP in fragments too small for its header, besides what its flags say.
    pub const FRAGMENTS: Self = Self(256);

    const NAMES: [&'static str; 9] = [
        "syn",
        "fin",
        "null",
        "xmas",
        "ack",
        "udp",
        "ping",
        "protocols",
        "fragments",
    ];

    /// Whether all of `other` are among them.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Their names.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES
            .into_iter()
            .enumerate()
            .filter(move |(bit, _)| self.0 >> bit & 1 == 1)
            .map(|(_, name)| name)
    }
}

impl core::ops::BitOr for Methods {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl core::ops::BitOrAssign for Methods {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// The sets of one window. Each set is a word; the place of a set is its number on the wire.
pub(crate) const SETS: usize = 8;

/// A set of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Set {
    /// Ports that were probed, on whatever host.
    PortsProbed,
    /// Ports on which some host answered as a service does.
    PortsAnswered,
    /// Hosts that were probed, on whatever port.
    HostsProbed,
    /// Hosts that accepted: SYN-ACK, or a datagram back.
    HostsAccepted,
    /// Hosts that went on to acknowledge something: a conversation, which a half-open or empty connection never is.
    HostsEngaged,
    /// Hosts that said no: RST to a SYN, ICMP unreachable.
    HostsRefused,
    /// Hosts that reset, or were reset by the source, outside a refusal. Says nothing if they engaged. In histories of datagrams
    /// [`Set::PORTS_USED`].
    HostsReset,
    /// Ports that a first fragment named whose segment's flags are elsewhere: probed, if any of the source's segments in such fragments
    /// is a probe. In histories of datagrams [`Set::PORTS_REFUSED`].
    PortsNamed,
}

impl Set {
    /// The source's own ports: what comes to them is an answer. For histories of datagrams only, which have no use for resets.
    pub(crate) const PORTS_USED: Self = Self::HostsReset;
    /// Ports that some host refused. For histories of datagrams only, which have no use for flags.
    pub(crate) const PORTS_REFUSED: Self = Self::PortsNamed;
}

impl Class {
    /// Whether its probes are datagrams: who sent first distinguishes an answer from a probe.
    #[inline(always)]
    pub(crate) const fn is_of_datagrams(self) -> bool {
        matches!(self, Self::Udp | Self::Ip)
    }
}

/// The bits to be set in the current window, one word for each set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct WindowBits {
    pub(crate) sets: [u64; SETS],
    pub(crate) methods: Methods,
}

impl WindowBits {
    /// None yet, of a way of probing.
    #[inline(always)]
    pub(crate) const fn by(methods: Methods) -> Self {
        Self {
            sets: [0; SETS],
            methods,
        }
    }

    /// With `bits` in `set` too.
    #[inline(always)]
    pub(crate) const fn with(mut self, set: Set, bits: u64) -> Self {
        self.sets[set as usize] |= bits;
        self
    }
}

/// A source's history: what it probed lately, and what became of that. 136 bytes.
///
/// Joining: the history is a function from window numbers to sets, cut to the largest number and the one before; the
/// join takes the union and cuts again. It commutes, associates and is idempotent, whatever the members' clocks say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SourceHistory {
    /// The number of the current window.
    epoch: u32,
    methods: Methods,
    /// The current window's sets, then the previous window's.
    windows: [[u64; SETS]; 2],
}

/// A scan that a history amounts to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DetectedScan {
    /// Many ports, or many hosts.
    pub shape: Shape,
    /// Distinct ports without an answer, estimated; 300 stands for more than can be reported.
    pub ports: u16,
    /// Distinct hosts that refused or kept silent, likewise.
    pub hosts: u16,
    /// The ways of probing that were seen while the history lived.
    pub methods: Methods,
}

/// The shape of a scan.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Shape {
    /// Many ports of few hosts.
    Ports,
    /// Many hosts on few ports.
    Hosts,
}

/// How much it takes to be a scan, within two windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thresholds {
    /// Distinct ports without any answer that make a port scan, provided that they are three times as many as the hosts that gave none.
    /// At most some 200 can be distinguished. Of datagrams only ports that refused count in full: see [`Thresholds::UDP`].
    pub ports: u16,
    /// Distinct hosts that refused which make a sweep, provided that they are two to four times as many as the unanswered ports, and no
    /// fewer than the hosts that the source converses with. One that has kept silent for a window counts half, one that may yet answer a
    /// quarter. Pinged hosts count in full, whether they answer or not.
    pub hosts: u16,
}

impl Thresholds {
    /// Of UDP. Silence says little there: a stream is sent to ports that never answer, several for each receiver. So a silent port counts
    /// half, and an eighth where every host that was sent to has sent something itself; each for as many hosts as there are, and not at all
    /// once a window has passed and datagrams still come. Of hosts one that refused counts in full and a silent one an eighth.
    pub const UDP: Self = Self {
        ports: 10,
        hosts: 5,
    };

    /// None is 0.
    pub(crate) fn bounded(self) -> Self {
        Self {
            ports: self.ports.max(1),
            hosts: self.hosts.max(1),
        }
    }
}

/// Weights of a host that refused, of one that kept silent for a window, and of one that may yet answer.
const REFUSED: u32 = 8;
const SILENT: u32 = 4;
const PENDING: u32 = 2;
/// The same of a host that is sent datagrams, and keeps silent.
const SILENT_DATAGRAMS: u32 = 1;
/// Of ports that are sent datagrams, how many silent ones count as one that refused; and where all hosts sent something, too.
const SILENT_PORTS: u32 = 2;
const SILENT_PORTS_CONVERSING: u32 = 8;
/// Ports must outnumber hosts by this factor, or hosts ports: a source that probes as many hosts as ports talks to
/// peers that each chose a port of their own. Of such peers chance makes the estimates differ by up to two and a half.
const CONCENTRATION: u32 = 3;
/// The same for up to [`FEW_HOSTS`] hosts probed by TCP, whose estimates are nearly exact.
const CONCENTRATION_FEW: u32 = 2;
const FEW_HOSTS: u16 = 15;
/// The same for hosts probed by UDP, where peers are many and few of them answer.
const CONCENTRATION_UDP: u32 = 4;

impl SourceHistory {
    /// With the marks in window `epoch`, or in the current one if the history is in a later one (another member's
    /// clock is ahead: evidence is not dropped for that).
    #[inline]
    pub(crate) fn marked(mut self, epoch: u32, marks: &WindowBits) -> Self {
        self.advance(epoch);
        for (set, bits) in self.windows[0].iter_mut().zip(&marks.sets) {
            *set |= bits;
        }
        self.methods |= marks.methods;
        self
    }

    /// Whether [`SourceHistory::marked`] would change nothing.
    #[inline(always)]
    pub(crate) fn holds(&self, epoch: u32, marks: &WindowBits) -> bool {
        self.epoch >= epoch
            && self.methods.contains(marks.methods)
            && self.windows[0]
                .iter()
                .zip(&marks.sets)
                .all(|(set, bits)| set & bits == *bits)
    }

    /// Whether all of `bits` are in the set of the current window, and that is `epoch`.
    #[inline(always)]
    pub(crate) const fn has(&self, epoch: u32, set: Set, bits: u64) -> bool {
        self.epoch >= epoch && self.windows[0][set as usize] & bits == bits
    }

    /// Whether some bit of `bits` is in the set in window `epoch` or the one before.
    #[inline(always)]
    pub(crate) const fn knows(&self, epoch: u32, set: Set, bits: u64) -> bool {
        let mut known = 0;
        if self.epoch.saturating_add(1) >= epoch {
            known = self.windows[0][set as usize];
        }
        if self.epoch >= epoch {
            known |= self.windows[1][set as usize];
        }
        known & bits != 0
    }

    /// The union over both windows of one set.
    #[inline(always)]
    const fn set(&self, set: Set) -> u64 {
        self.windows[0][set as usize] | self.windows[1][set as usize]
    }

    /// Moves on to window `epoch` if that is later.
    #[inline]
    fn advance(&mut self, epoch: u32) {
        if epoch <= self.epoch {
            return;
        }
        self.windows[1] = if epoch - self.epoch == 1 {
            self.windows[0]
        } else {
            [0; SETS]
        };
        self.windows[0] = [0; SETS];
        self.epoch = epoch;
    }

    /// Whether it is a scan, in window `epoch`.
    #[inline]
    pub(crate) fn judge(
        mut self,
        class: Class,
        epoch: u32,
        thresholds: Thresholds,
    ) -> Option<DetectedScan> {
        self.advance(epoch);
        let hosts = self.hosts(class);
        let ports = match class.is_of_datagrams() {
            true => self.judge_datagrams(&hosts, thresholds),
            false => {
                let named = match self.methods.contains(Methods::FRAGMENTS) {
                    true => self.set(Set::PortsNamed),
                    false => 0,
                };
                let probed = self.set(Set::PortsProbed) | named;
                let ports = estimate(probed & !self.set(Set::PortsAnswered));
                let is_scan = ports >= thresholds.ports
                    && u32::from(ports) >= CONCENTRATION * u32::from(hosts.unanswered);
                (ports, is_scan)
            }
        };
        let (ports, is_scan) = ports;
        let is_sweep = || {
            let factor = match class {
                Class::Tcp if hosts.unanswered <= FEW_HOSTS => CONCENTRATION_FEW,
                Class::Tcp => CONCENTRATION,
                Class::Udp => CONCENTRATION_UDP,
                Class::Icmp => 0,
                // Peers of one protocol are no sweep.
                Class::Ip => return false,
            };
            hosts.weight >= REFUSED * u32::from(thresholds.hosts)
                && u32::from(hosts.unanswered) >= factor * u32::from(ports)
                && hosts.unanswered >= hosts.conversing
        };
        let shape = match is_scan {
            true => Shape::Ports,
            false if is_sweep() => Shape::Hosts,
            false => return None,
        };
        Some(DetectedScan {
            shape,
            ports,
            hosts: hosts.unanswered,
            methods: self.methods,
        })
    }

    /// What became of the hosts that were probed.
    #[inline]
    fn hosts(&self, class: Class) -> Hosts {
        let probed = self.set(Set::HostsProbed);
        let accepted = self.set(Set::HostsAccepted);
        let engaged = self.set(Set::HostsEngaged);
        let reset = match class {
            Class::Tcp => self.set(Set::HostsReset) & !engaged,
            _ => 0,
        };
        let refused = match class {
            // One address has no business pinging many, whether they answer or not.
            Class::Icmp => probed,
            // A reset of a host that was not probed is weaker: an ACK probe's, or an old connection's.
            _ => self.set(Set::HostsRefused) | reset & probed,
        };
        let open = (probed & !engaged & !accepted | reset) & !refused;
        let [now, before] = [0, 1].map(|place| self.windows[place][Set::HostsProbed as usize]);
        let (open, silent, weights) = match class.is_of_datagrams() {
            // Who is sent to in both windows gets a stream.
            true => {
                let open = open & !(now & before);
                (open, 0, (SILENT_DATAGRAMS, SILENT_DATAGRAMS))
            }
            false => (open, open & before, (SILENT, PENDING)),
        };
        let unanswered = estimate(refused | open);
        let bits = (refused | open).count_ones();
        let weight = REFUSED * refused.count_ones()
            + weights.0 * silent.count_ones()
            + weights.1 * (open & !silent).count_ones();
        Hosts {
            unanswered,
            // The weight of the set bits, scaled to the hosts that they stand for.
            weight: weight * u32::from(unanswered) / bits.max(1),
            refused: estimate(refused),
            probed: estimate(probed),
            conversing: match class.is_of_datagrams() {
                true => estimate(accepted),
                false => estimate(engaged),
            },
            all_converse: probed & !accepted == 0,
        }
    }

    /// How many ports gave datagrams no answer, and whether they are a scan.
    #[inline]
    fn judge_datagrams(&self, hosts: &Hosts, thresholds: Thresholds) -> (u16, bool) {
        let [now, before] = [0, 1].map(|place| self.windows[place][Set::PortsProbed as usize]);
        // A port that is sent to in both windows gets a stream, whatever becomes of it.
        let unanswered = (now ^ before) & !self.set(Set::PortsAnswered);
        let refused = estimate(unanswered & self.set(Set::PORTS_REFUSED));
        let silent = estimate(unanswered & !self.set(Set::PORTS_REFUSED));
        let is_refused = refused >= thresholds.ports
            && u32::from(refused) >= CONCENTRATION * u32::from(hosts.refused);
        let factor = match hosts.all_converse {
            true => SILENT_PORTS_CONVERSING,
            false => SILENT_PORTS,
        };
        let weight = factor * u32::from(refused) + u32::from(silent);
        let least = factor * u32::from(thresholds.ports) * u32::from(hosts.probed.max(1));
        (
            refused.saturating_add(silent).min(300),
            is_refused || weight >= least,
        )
    }
}

/// What became of the hosts that a history's source probed, estimated.
struct Hosts {
    /// Hosts that refused or kept silent.
    unanswered: u16,
    /// What they weigh: [`REFUSED`] for each that refused.
    weight: u32,
    refused: u16,
    probed: u16,
    /// Hosts that the source converses with.
    conversing: u16,
    /// Whether each host that was probed sent something itself.
    all_converse: bool,
}

impl Value for SourceHistory {
    const JOINS: bool = true;

    #[inline]
    fn join(&mut self, other: &Self) {
        self.advance(other.epoch);
        // By how many windows the other is behind; further ones are forgotten.
        let behind = (self.epoch - other.epoch) as usize;
        for (place, theirs) in other.windows.iter().enumerate() {
            if let Some(ours) = self.windows.get_mut(place + behind) {
                for (set, bits) in ours.iter_mut().zip(theirs) {
                    *set |= bits;
                }
            }
        }
        self.methods |= other.methods;
    }
}

/// Window number, methods, a bit for each set that is not empty, those sets.
impl Wire for SourceHistory {
    const LAYOUT: u64 = layout::manual("port-scan history", 2);
    #[inline]
    fn encode(&self, out: &mut Writer<'_>) {
        out.varint(self.epoch.into());
        out.u16(self.methods.0);
        let present = self
            .windows
            .iter()
            .flatten()
            .enumerate()
            .fold(0u16, |present, (place, set)| {
                present | u16::from(*set != 0) << place
            });
        out.u16(present);
        for set in self.windows.iter().flatten().filter(|set| **set != 0) {
            out.u64(*set);
        }
    }
    #[inline]
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let epoch = u32::try_from(input.varint()?).map_err(|_| BadBytes)?;
        let methods = Methods(input.u16()?);
        let present = input.u16()?;
        let mut windows = [[0; SETS]; 2];
        for (place, set) in windows.iter_mut().flatten().enumerate() {
            if present >> place & 1 == 1 {
                *set = input.u64()?;
            }
        }
        Ok(Self {
            epoch,
            methods,
            windows,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::{laws, objects::hash};

    fn random_trail(draw: u64) -> SourceHistory {
        let number = |place: u64| hash::words(draw, place, 77);
        let mut windows = [[0; SETS]; 2];
        for (place, set) in windows.iter_mut().flatten().enumerate() {
            *set = number(place as u64) & number(100 + place as u64);
        }
        SourceHistory {
            epoch: (number(50) % 5) as u32,
            methods: Methods(number(51) as u16),
            windows,
        }
    }

    #[test]
    fn trails_join_as_the_law_says() {
        for draw in 0..3_000 {
            laws::value(
                random_trail(draw),
                random_trail(draw + 10_000),
                random_trail(draw + 20_000),
            );
        }
    }

    #[test]
    fn trails_come_back_from_the_wire() {
        for draw in 0..500 {
            let mut history = random_trail(draw);
            if draw % 3 == 0 {
                history.windows[1] = [0; SETS];
            }
            let mut bytes = Vec::new();
            history.encode(&mut Writer::new(&mut bytes, &[]));
            let mut input = Reader::new(&bytes, &[]);
            assert_eq!(SourceHistory::decode(&mut input), Ok(history));
            assert!(input.is_empty());
            for length in 0..bytes.len() {
                assert_eq!(
                    SourceHistory::decode(&mut Reader::new(&bytes[..length], &[])),
                    Err(BadBytes)
                );
            }
        }
    }

    #[test]
    fn evidence_of_the_last_window_counts_and_of_the_one_before_not() {
        let marks = WindowBits::default()
            .with(Set::PortsProbed, 0xfff)
            .with(Set::HostsProbed, 1);
        let history = SourceHistory::default().marked(10, &marks);
        let thresholds = Thresholds { ports: 7, hosts: 5 };
        assert!(history.judge(Class::Tcp, 10, thresholds).is_some());
        assert!(history.judge(Class::Tcp, 11, thresholds).is_some());
        assert!(history.judge(Class::Tcp, 12, thresholds).is_none());
    }

    #[test]
    fn a_late_clock_adds_to_the_current_window() {
        let early = WindowBits::default().with(Set::PortsProbed, 1);
        let late = WindowBits::default().with(Set::PortsProbed, 2);
        let history = SourceHistory::default().marked(10, &early).marked(7, &late);
        assert_eq!((history.epoch, history.set(Set::PortsProbed)), (10, 3));
        assert!(history.holds(7, &late));
    }
}
