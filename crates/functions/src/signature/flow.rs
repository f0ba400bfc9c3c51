//! Streams, connections and blocks of a stream as keys.

use core::net::IpAddr;

use asterism_function::objects::hash;
use asterism_function::{BadBytes, Host, Key, Packet, Protocol, Reader, Wire, Writer, layout};

/// One direction of a TCP connection or of UDP between two endpoints.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Key)]
#[key(between = Self::hosts)]
pub struct Stream {
    /// Who sends, and from which port.
    pub source: (Host, u16),
    /// Who is sent to, and at which port.
    pub destination: (Host, u16),
    /// TCP, else UDP.
    pub is_tcp: bool,
}

impl Stream {
    /// The stream that a whole TCP or UDP packet belongs to.
    #[inline(always)]
    pub(super) fn of(packet: &Packet<'_>) -> Option<Self> {
        let layout = packet.layout();
        let is_tcp = match layout.transport() {
            asterism_function::Transport::Tcp => true,
            asterism_function::Transport::Udp => false,
            _ => return None,
        };
        let (source_port, destination_port) = packet.ports()?;
        let (source, destination): (Host, Host) = match packet.ipv4_source() {
            Some(source) => (source.into(), packet.ipv4_destination()?.into()),
            None => (
                packet.ipv6_source()?.into(),
                packet.ipv6_destination()?.into(),
            ),
        };
        Some(Self {
            source: (source, source_port),
            destination: (destination, destination_port),
            is_tcp,
        })
    }

    fn hosts(&self) -> (IpAddr, IpAddr) {
        (self.source.0.address(), self.destination.0.address())
    }

    /// The stream back.
    #[must_use]
    pub const fn back(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            is_tcp: self.is_tcp,
        }
    }

    /// The same for both directions of a connection.
    #[inline(always)]
    pub(super) fn connection(self) -> Self {
        self.min(self.back())
    }

    /// `tcp` or `udp`.
    #[must_use]
    pub const fn protocol(&self) -> Protocol {
        if self.is_tcp {
            Protocol::TCP
        } else {
            Protocol::UDP
        }
    }
}

/// As `tcp 192.0.2.1:1025 > 198.51.100.1:80`.
impl core::fmt::Display for Stream {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let end = |(host, port): (Host, u16)| {
            core::net::SocketAddr::new(host.address(), port).to_string()
        };
        let name = if self.is_tcp { "tcp" } else { "udp" };
        write!(
            out,
            "{name} {} > {}",
            end(self.source),
            end(self.destination)
        )
    }
}

/// As people write it, so that `asterism state get 192.0.2.1:1025` finds it.
impl core::fmt::Debug for Stream {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, out)
    }
}

impl Wire for Stream {
    const LAYOUT: u64 = layout::manual("signature stream", 1);
    const BYTES_MAX: usize = 1 + 2 * (Host::BYTES_MAX + 2);
    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(self.is_tcp.into());
        for (host, port) in [self.source, self.destination] {
            host.encode(out);
            out.u16(port);
        }
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let is_tcp = match input.u8()? {
            0 => false,
            1 => true,
            _ => return Err(BadBytes),
        };
        Ok(Self {
            source: (Host::decode(input)?, input.u16()?),
            destination: (Host::decode(input)?, input.u16()?),
            is_tcp,
        })
    }
}

/// Bits of a sequence number within a block.
pub(super) const BLOCK_BITS: u32 = 14;

/// 16 KiB of a TCP stream, by sequence number, as one list of signatures reads it: the pieces of all signatures that begin
/// there are under it. Pieces name their bytes by places in a list, so those of another list are under another key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Wire)]
#[wire(check = Self::is_sane)]
pub struct Place {
    /// The stream.
    pub stream: Stream,
    /// The sequence number of its first byte, divided by 16,384.
    #[wire(u24)]
    pub block: u32,
    /// Names the list: the same on hosts whose signatures have the same bytes.
    pub list: u32,
}

impl Place {
    /// The place of a sequence number, by a list.
    #[inline(always)]
    pub(super) const fn of(stream: Stream, sequence: u32, list: u32) -> Self {
        Self {
            stream,
            block: sequence >> BLOCK_BITS,
            list,
        }
    }

    const fn is_sane(&self) -> bool {
        self.block >> (32 - BLOCK_BITS) == 0
    }
}

impl Key for Place {
    const IS_OF_CONVERSATION: bool = true;
    fn between(&self) -> Option<(IpAddr, IpAddr)> {
        self.stream.between()
    }
    #[inline(always)]
    fn hash(&self, seed: u64) -> u64 {
        let word = u64::from(self.list) << 32 | u64::from(self.block);
        hash::word(word, self.stream.hash(seed))
    }
}

/// Who is blocked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Wire)]
pub enum Target {
    /// Both directions of a connection: the smaller of its two streams.
    #[wire(tag = 0)]
    Connection(Stream),
    /// All that a host sends.
    #[wire(tag = 1)]
    Source(Host),
}

impl Key for Target {
    #[inline(always)]
    fn hash(&self, seed: u64) -> u64 {
        match self {
            Self::Connection(stream) => stream.hash(seed),
            Self::Source(host) => host.hash(!seed),
        }
    }
}
