//! What a transport and its thread are given once, and why they refuse it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use asterism_placement::MemberId;
use asterism_placement::membership::MEMBERS_MAX;

/// Bytes of a socket's buffer at least.
pub const BUFFER_BYTES_MIN: usize = 4 << 10;
/// Bytes of a socket's buffer at most.
pub const BUFFER_BYTES_MAX: usize = 1 << 30;
/// The least bandwidth cap: below it one datagram to some peers is a second's worth.
pub const BANDWIDTH_BITS_MIN: u64 = 64_000;
/// The greatest bandwidth cap.
pub const BANDWIDTH_BITS_MAX: u64 = 1_000_000_000_000;

/// Another member, and where it receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpPeer {
    /// Its name.
    pub member: MemberId,
    /// Its [`UdpConfig::bind`]: what is for it alone goes there, and what comes from there is taken for a
    /// member's until it is opened. Bound: the family of `bind`; no port 0.
    pub address: SocketAddr,
    /// Whether it listens to the group. What is for all goes to it by unicast if not. Sane: true where all
    /// hosts share a segment; false for one behind a router that forwards no multicast.
    pub multicast: bool,
    /// Whether it is in this host's site: what is for the site goes to it. Sane: true where members have no sites.
    pub near: bool,
}

/// The group that members on one segment share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MulticastConfig {
    /// Its address and port; the same at all members. Sane: of 239.192.0.0/14 (RFC 2365) or `ff15::/16`, and a
    /// port that nothing else uses. Bound: a multicast address of the family of `bind`.
    pub group: SocketAddr,
    /// The interface by which the group is sent to and listened to, by name. Sane: that of `bind`. Empty: the one
    /// that the routes name for the group. Bound: it exists.
    pub interface: String,
    /// Routers that may forward a datagram, plus one. Sane: 1, which stays on the segment.
    pub hops: u8,
    /// Whether the kernel hands what is sent to other sockets of this machine too. Sane: false; true where
    /// several hosts of a cluster share a machine and a network namespace. Costs a copy of each datagram.
    pub loopback: bool,
}

/// How datagrams and the path's MTU go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathMtu {
    /// Datagrams are sent with "do not fragment"; a path that says it is narrower makes them smaller
    /// (`IP_PMTUDISC_DO`). Sane.
    Discover,
    /// The same, but what routers say is not believed: only the interface's own MTU counts
    /// (`IP_PMTUDISC_PROBE`). For paths whose ICMP messages are forged or wrong.
    Probe,
    /// Datagrams may be fragmented on the way (`IP_PMTUDISC_DONT`). One lost fragment loses the datagram.
    Fragment,
}

/// How a host's datagrams travel. [`UdpConfig::new`] fills in sane values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// Where this host receives and sends from. Sane: its address on the network between the hosts. Bound: an
    /// address of this machine; port 0 takes any that is free, which only tests can use.
    pub bind: SocketAddr,
    /// The other members. Bound: each member and each address once; at most
    /// [`MEMBERS_MAX`].
    pub peers: Vec<UdpPeer>,
    /// The group, if what is for all goes there; else every peer gets its own copy.
    pub multicast: Option<MulticastConfig>,
    /// Bytes of the receiving sockets' buffers, each, as the kernel counts them: a datagram of 1472 bytes costs
    /// about 2300. Sane: 16 MiB, some 7,000 datagrams. Bound: [`BUFFER_BYTES_MIN`] to [`BUFFER_BYTES_MAX`].
    pub receive_buffer_bytes: usize,
    /// Bytes of the sending socket's buffer. Sane: 4 MiB. Bound: as above.
    pub send_buffer_bytes: usize,
    /// What to do about the path's MTU. Sane: [`PathMtu::Discover`].
    pub path_mtu: PathMtu,
    /// Bits per second that this host sends at most, IP and UDP headers included and every copy counted. Sane:
    /// none in a site; some nine tenths of the link between sites. Bound: [`BANDWIDTH_BITS_MIN`] to
    /// [`BANDWIDTH_BITS_MAX`]. See [`super::PACE_BURST`] for how exactly it holds.
    pub bandwidth_bits_per_second: Option<u64>,
    /// Hand the kernel many datagrams as one message for it to cut (`UDP_SEGMENT`). Sane: true; falls back by
    /// itself where the kernel refuses.
    pub segmentation: bool,
    /// Take many datagrams as one message (`UDP_GRO`). Sane: true; falls back by itself.
    pub receive_offload: bool,
}

impl UdpConfig {
    /// Unicast from `bind` to `peers`, with sane values for the rest.
    #[must_use]
    pub fn new(bind: SocketAddr, peers: impl IntoIterator<Item = (MemberId, SocketAddr)>) -> Self {
        let peers = peers.into_iter().map(|(member, address)| UdpPeer {
            member,
            address,
            multicast: true,
            near: true,
        });
        Self {
            bind,
            peers: peers.collect(),
            multicast: None,
            receive_buffer_bytes: 16 << 20,
            send_buffer_bytes: 4 << 20,
            path_mtu: PathMtu::Discover,
            bandwidth_bits_per_second: None,
            segmentation: true,
            receive_offload: true,
        }
    }

    /// The same with a group on an interface, one hop far.
    #[must_use]
    pub fn with_multicast(mut self, group: SocketAddr, interface: &str) -> Self {
        self.multicast = Some(MulticastConfig {
            group,
            interface: interface.to_owned(),
            hops: 1,
            loopback: false,
        });
        self
    }

    /// What contradicts itself or is out of bounds, in words; empty when all is well.
    #[must_use]
    pub fn errors(&self) -> Vec<String> {
        let mut errors = Vec::new();
        if self.peers.len() > MEMBERS_MAX {
            errors.push(format!(
                "{} peers are more than {MEMBERS_MAX}",
                self.peers.len()
            ));
        }
        for (place, peer) in self.peers.iter().enumerate() {
            let UdpPeer {
                member, address, ..
            } = peer;
            if address.is_ipv6() != self.bind.is_ipv6() {
                errors.push(format!(
                    "{member} is at {address}, which {} cannot send to: use one address family",
                    self.bind
                ));
            }
            if address.port() == 0 || address.ip().is_unspecified() || address.ip().is_multicast() {
                errors.push(format!("{member} cannot be at {address}"));
            }
            for other in &self.peers[..place] {
                if other.member == *member {
                    errors.push(format!("{member} is listed twice"));
                }
                if other.address == *address {
                    errors.push(format!(
                        "{} and {member} are both at {address}",
                        other.member
                    ));
                }
            }
            if *address == self.bind {
                errors.push(format!("{member} is at this host's own address {address}"));
            }
        }
        if let Some(multicast) = &self.multicast {
            let group = multicast.group;
            if !group.ip().is_multicast() || group.port() == 0 {
                errors.push(format!("{group} is no multicast address with a port"));
            }
            if group.is_ipv6() != self.bind.is_ipv6() {
                errors.push(format!(
                    "the group {group} is not of the family of {}",
                    self.bind
                ));
            }
            if multicast.hops == 0 {
                errors.push("with 0 hops no multicast leaves the machine".into());
            }
        }
        for (what, bytes) in [
            ("receive_buffer_bytes", self.receive_buffer_bytes),
            ("send_buffer_bytes", self.send_buffer_bytes),
        ] {
            if !(BUFFER_BYTES_MIN..=BUFFER_BYTES_MAX).contains(&bytes) {
                errors.push(format!(
                    "{what} is {bytes}; it must be {BUFFER_BYTES_MIN} to {BUFFER_BYTES_MAX}"
                ));
            }
        }
        if let Some(bits) = self.bandwidth_bits_per_second
            && !(BANDWIDTH_BITS_MIN..=BANDWIDTH_BITS_MAX).contains(&bits)
        {
            errors.push(format!(
                "bandwidth_bits_per_second is {bits}; it must be {BANDWIDTH_BITS_MIN} to {BANDWIDTH_BITS_MAX}"
            ));
        }
        errors
    }
}

/// How the thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunMode {
    /// It sleeps in `ppoll` when there is nothing to do.
    Poll,
    /// It never sleeps: the least lag, and a whole core.
    Spin,
}

/// How a state channel's thread runs. [`RunConfig::default`] has sane values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunConfig {
    /// Whether it sleeps.
    pub mode: RunMode,
    /// The longest sleep. It bounds how late a group is seen whose instance rang no waker (see
    /// [`super::Waker`]). Sane: 1 ms; 100 us if no instance rings. Bound: 10 us to 100 ms.
    pub sleep_max: Duration,
    /// How long [`stop`](super::StateChannelThread::stop) waits for the others to acknowledge what is under way.
    /// Sane: 1 s. Bound: to 60 s.
    pub flush_max: Duration,
    /// How often the snapshot is published. Sane: 100 ms. Bound: 1 ms to 10 s.
    pub snapshot_interval: Duration,
    /// The processor to run on. Sane: none; or the one set apart for it.
    pub processor: Option<usize>,
}

impl Default for RunConfig {
    fn default() -> Self {
        Self {
            mode: RunMode::Poll,
            sleep_max: Duration::from_millis(1),
            flush_max: Duration::from_secs(1),
            snapshot_interval: Duration::from_millis(100),
            processor: None,
        }
    }
}

impl RunConfig {
    /// What is out of bounds, in words; empty when all is well.
    #[must_use]
    pub fn errors(&self) -> Vec<String> {
        let bounds = [
            ("sleep_max", self.sleep_max, 10, 100_000),
            ("flush_max", self.flush_max, 0, 60_000_000),
            (
                "snapshot_interval",
                self.snapshot_interval,
                1_000,
                10_000_000,
            ),
        ];
        bounds
            .into_iter()
            .filter(|(_, value, least, most)| !(*least..=*most).contains(&value.as_micros()))
            .map(|(what, value, least, most)| {
                format!("{what} is {value:?}; it must be {least} to {most} microseconds")
            })
            .collect()
    }
}

/// Why a transport or its thread did not start, or ended.
#[derive(Debug)]
pub enum TransportError {
    /// The configuration contradicts itself or is out of its bounds. Nothing was opened.
    Configuration(Vec<String>),
    /// The multicast interface is not there. Nothing was opened.
    Interface {
        /// Its name.
        name: String,
        /// Why.
        error: io::Error,
    },
    /// The kernel refused something that has no substitute. What was opened is closed again.
    Socket {
        /// What was tried.
        what: &'static str,
        /// With which address.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// The thread or its wake-up descriptor could not be made. Sockets are closed again.
    Thread(io::Error),
    /// The thread panicked: this host says nothing any more, and the others see it silent. Stop the host.
    Panicked,
}

impl core::fmt::Display for TransportError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Configuration(errors) => write!(
                formatter,
                "the state channel was not started: {}",
                errors.join("; ")
            ),
            Self::Interface { name, error } => write!(
                formatter,
                "the state channel was not started: no interface {name}: {error}; `ip link` lists those there are"
            ),
            Self::Socket {
                what,
                address,
                error,
            } => {
                write!(
                    formatter,
                    "the state channel was not started: {what} {address}: {error}"
                )?;
                match error.raw_os_error() {
                    Some(libc::EADDRINUSE) => write!(
                        formatter,
                        "; another process has it: stop that or choose another port"
                    ),
                    Some(libc::EADDRNOTAVAIL) => write!(
                        formatter,
                        "; this machine does not have that address yet: `ip address` lists what it has"
                    ),
                    _ => Ok(()),
                }
            }
            Self::Thread(error) => write!(
                formatter,
                "the state channel was not started: no thread: {error}"
            ),
            Self::Panicked => write!(
                formatter,
                "the state channel's thread panicked: this host shares nothing any more; stop it and report the message above"
            ),
        }
    }
}

impl std::error::Error for TransportError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> UdpConfig {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        UdpConfig::new(
            at("10.0.0.1:4747"),
            [
                (MemberId(2), at("10.0.0.2:4747")),
                (MemberId(3), at("10.0.0.3:4747")),
            ],
        )
        .with_multicast(at("239.192.7.7:4748"), "eth0")
    }

    #[test]
    fn every_contradiction_is_named() {
        assert_eq!(sound().errors(), Vec::<String>::new());
        type Change = fn(&mut UdpConfig);
        let change: [(Change, &str); 9] = [
            (
                |config| config.peers[1].member = MemberId(2),
                "m2 is listed twice",
            ),
            (|config| config.peers[1].address.set_port(0), "cannot be at"),
            (
                |config| config.peers[1].address = config.peers[0].address,
                "both at",
            ),
            (
                |config| config.peers[1].address = config.bind,
                "own address",
            ),
            (
                |config| config.peers[1].address = "[::1]:1".parse().unwrap(),
                "one address family",
            ),
            (
                |config| config.multicast.as_mut().unwrap().group = config.bind,
                "no multicast address",
            ),
            (
                |config| config.multicast.as_mut().unwrap().hops = 0,
                "0 hops",
            ),
            (
                |config| config.receive_buffer_bytes = 1,
                "receive_buffer_bytes",
            ),
            (
                |config| config.bandwidth_bits_per_second = Some(1),
                "bandwidth_bits_per_second",
            ),
        ];
        for (change, word) in change {
            let mut config = sound();
            change(&mut config);
            let errors = config.errors();
            assert!(
                errors.len() == 1 && errors[0].contains(word),
                "{word}: {errors:?}"
            );
        }
    }

    #[test]
    fn the_threads_settings_have_bounds() {
        assert_eq!(RunConfig::default().errors(), Vec::<String>::new());
        let config = RunConfig {
            sleep_max: Duration::from_secs(1),
            flush_max: Duration::from_secs(61),
            snapshot_interval: Duration::ZERO,
            ..RunConfig::default()
        };
        assert_eq!(config.errors().len(), 3);
    }
}
