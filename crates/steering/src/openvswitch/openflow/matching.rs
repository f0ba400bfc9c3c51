//! What a flow matches (OpenFlow 1.5.1, section 7.2.3): a port and addresses.

use std::net::IpAddr;

use super::WireError;
use super::bytes::{Reader, Writer};

/// `OFPXMC_OPENFLOW_BASIC`.
const BASIC: u16 = 0x8000;
const IN_PORT: u8 = 0;
pub(super) const ETH_DST: u8 = 3;
const ETH_TYPE: u8 = 5;
pub(super) const IPV4_SRC: u8 = 11;
pub(super) const IPV4_DST: u8 = 12;
pub(super) const TCP_SRC: u8 = 13;
pub(super) const TCP_DST: u8 = 14;
pub(super) const UDP_SRC: u8 = 15;
pub(super) const UDP_DST: u8 = 16;
pub(super) const SCTP_SRC: u8 = 17;
pub(super) const SCTP_DST: u8 = 18;
pub(super) const IPV6_SRC: u8 = 26;
pub(super) const IPV6_DST: u8 = 27;

/// The Ethernet types of the two versions of IP.
const ETH_TYPE_IPV4: u16 = 0x0800;
const ETH_TYPE_IPV6: u16 = 0x86dd;

/// A network of IPv4 or IPv6. The bits behind the prefix are zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    /// Its first address.
    pub address: IpAddr,
    /// Bits that all of its addresses have in common: 0 to 32 or 128.
    pub prefix_bits: u8,
}

impl Network {
    /// All of IPv4.
    pub const ALL_IPV4: Network = Network {
        address: IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
        prefix_bits: 0,
    };

    /// All of IPv6.
    pub const ALL_IPV6: Network = Network {
        address: IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
        prefix_bits: 0,
    };

    /// Whether its prefix is no longer than an address and no bit is set behind it.
    #[must_use]
    pub fn is_network(&self) -> bool {
        let behind = |shift: u32| u128::MAX.checked_shr(shift).unwrap_or(0);
        let bits = u32::from(self.prefix_bits);
        match self.address {
            IpAddr::V4(it) => bits <= 32 && u128::from(it.to_bits()) & behind(96 + bits) == 0,
            IpAddr::V6(it) => bits <= 128 && it.to_bits() & behind(bits) == 0,
        }
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

/// A match of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// The port that they come in by.
    pub in_port: Option<u32>,
    /// The network that they are for; its version is theirs. [`Network::ALL_IPV4`] is all packets of IPv4.
    pub destination: Option<Network>,
    /// Whether a received match has more in it than this says: no driver of ours wrote it.
    pub has_more: bool,
}

impl Match {
    pub(super) fn write(&self, to: &mut Writer) -> Result<(), WireError> {
        if self.has_more {
            return Err(WireError::NotInVersion("a match that was not read whole"));
        }
        let start = to.len();
        to.u16(1); // OFPMT_OXM
        to.u16(0);
        if let Some(port) = self.in_port {
            field(to, IN_PORT, &port.to_be_bytes());
        }
        match self.destination {
            Some(
                network @ Network {
                    address: IpAddr::V4(it),
                    ..
                },
            ) => {
                field(to, ETH_TYPE, &ETH_TYPE_IPV4.to_be_bytes());
                prefix(to, IPV4_DST, it.octets(), network.prefix_bits);
            }
            Some(
                network @ Network {
                    address: IpAddr::V6(it),
                    ..
                },
            ) => {
                field(to, ETH_TYPE, &ETH_TYPE_IPV6.to_be_bytes());
                prefix(to, IPV6_DST, it.octets(), network.prefix_bits);
            }
            None => {}
        }
        to.count(start, 2, "a match")?;
        to.align(start, 8);
        Ok(())
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Result<Match, WireError> {
        let mut fields = from.counted(2, 4, 8, "a match")?;
        let kind = fields.u16()?;
        if kind != 1 {
            return Err(WireError::Value {
                what: "the type of a match",
                value: kind.into(),
            });
        }
        fields.skip(2)?;
        let mut read = Match::default();
        let mut version = None;
        while !fields.is_empty() {
            let one = Field::read(&mut fields)?;
            match (one.class, one.number, one.value, one.mask) {
                (BASIC, IN_PORT, value, None) => {
                    read.in_port = Some(u32::from_be_bytes(exact(value)?));
                }
                (BASIC, ETH_TYPE, value, None) => version = Some(u16::from_be_bytes(exact(value)?)),
                (BASIC, IPV4_DST, value, mask) => {
                    let address = IpAddr::from(exact::<4>(value)?);
                    read.set_destination(address, mask);
                }
                (BASIC, IPV6_DST, value, mask) => {
                    let address = IpAddr::from(exact::<16>(value)?);
                    read.set_destination(address, mask);
                }
                _ => read.has_more = true,
            }
        }
        let known = |network: Network| match network.address {
            IpAddr::V4(_) => ETH_TYPE_IPV4,
            IpAddr::V6(_) => ETH_TYPE_IPV6,
        };
        match (version, read.destination) {
            (Some(version), Some(network)) => read.has_more |= version != known(network),
            (Some(ETH_TYPE_IPV4), None) => read.destination = Some(Network::ALL_IPV4),
            (Some(ETH_TYPE_IPV6), None) => read.destination = Some(Network::ALL_IPV6),
            (Some(_), None) | (None, Some(_)) => read.has_more = true,
            (None, None) => {}
        }
        Ok(read)
    }

    fn set_destination(&mut self, address: IpAddr, mask: Option<&[u8]>) {
        let mut prefix_bits = if address.is_ipv4() { 32 } else { 128 };
        if let Some(mask) = mask {
            let ones: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
            let leading = mask
                .iter()
                .flat_map(|byte| (0..8).map(move |bit| byte << bit & 0x80));
            let leading = leading.take_while(|bit| *bit != 0).count();
            self.has_more |= leading != ones as usize;
            prefix_bits = u8::try_from(ones).unwrap_or(prefix_bits);
        }
        let network = Network {
            address,
            prefix_bits,
        };
        self.has_more |= !network.is_network() || self.destination.is_some();
        self.destination = Some(network);
    }
}

/// A match field as it is sent (OXM TLV).
pub(super) struct Field<'a> {
    pub(super) class: u16,
    pub(super) number: u8,
    pub(super) value: &'a [u8],
    pub(super) mask: Option<&'a [u8]>,
}

impl<'a> Field<'a> {
    pub(super) fn read(from: &mut Reader<'a>) -> Result<Field<'a>, WireError> {
        let class = from.u16()?;
        let number = from.u8()?;
        let length = usize::from(from.u8()?);
        let all = from.bytes(length)?;
        let (value, mask) = match number & 1 {
            0 => (all, None),
            _ => {
                let (value, mask) = all.split_at(length / 2);
                (value, Some(mask))
            }
        };
        Ok(Field {
            class,
            number: number >> 1,
            value,
            mask,
        })
    }

    /// Whether it is this basic field, without a mask.
    pub(super) fn is_basic(&self, number: u8) -> bool {
        self.class == BASIC && self.number == number && self.mask.is_none()
    }
}

/// Writes a field without a mask.
pub(super) fn field(to: &mut Writer, number: u8, value: &[u8]) {
    to.u16(BASIC);
    to.u8(number << 1);
    // No field has more than 16 bytes.
    to.u8(value.len() as u8);
    to.bytes(value);
}

/// Writes an address field, masked if need be; nothing if all addresses match.
fn prefix<const BYTES: usize>(to: &mut Writer, number: u8, address: [u8; BYTES], bits: u8) {
    let bits = usize::from(bits);
    if bits == 0 {
        return;
    }
    if bits >= 8 * BYTES {
        return field(to, number, &address);
    }
    to.u16(BASIC);
    to.u8(number << 1 | 1);
    to.u8(2 * BYTES as u8);
    to.bytes(&address);
    for byte in 0..BYTES {
        let ones = bits.saturating_sub(8 * byte).min(8);
        to.u8((0xff00_u16 >> ones) as u8);
    }
}

fn exact<const BYTES: usize>(value: &[u8]) -> Result<[u8; BYTES], WireError> {
    value.try_into().map_err(|_| WireError::Length {
        what: "a match field",
        length: value.len(),
    })
}
