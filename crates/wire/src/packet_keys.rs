//! Packets' addresses, endpoints and flows as keys.

use core::net::{Ipv4Addr, Ipv6Addr};

use asterism_memory::hash::Packed;
use asterism_packet::{Endpoint, Flow4, FlowKey, MacAddress, Protocol};

use crate::key::Key;
use crate::layout::manual;
use crate::wire::{BadBytes, Reader, Wire, Writer};

impl Key for Ipv4Addr {
    #[inline(always)]
    fn hash(&self, seed: u64) -> u64 {
        asterism_memory::hash::word(self.to_bits().into(), seed)
    }
    #[inline(always)]
    fn pack(&self, packed: Packed) -> Packed {
        packed.with(self.to_bits().into(), 32)
    }
    #[inline(always)]
    fn chain(&self, state: u64) -> u64 {
        state
    }
}

impl Key for Ipv6Addr {
    #[inline(always)]
    fn hash(&self, seed: u64) -> u64 {
        let bits = self.to_bits();
        asterism_memory::hash::words(bits as u64, (bits >> 64) as u64, seed)
    }
    #[inline(always)]
    fn pack(&self, packed: Packed) -> Packed {
        let bits = self.to_bits();
        packed.with((bits >> 64) as u64, 64).with(bits as u64, 64)
    }
    #[inline(always)]
    fn chain(&self, state: u64) -> u64 {
        state
    }
}

/// Keys that are what they hold.
macro_rules! keys_by_content {
    ($($name:ty),+) => {
        $(impl Key for $name {
            #[inline(always)]
            fn hash(&self, seed: u64) -> u64 {
                self.0.hash(seed)
            }
            #[inline(always)]
            fn pack(&self, packed: Packed) -> Packed {
                self.0.pack(packed)
            }
            #[inline(always)]
            fn chain(&self, state: u64) -> u64 {
                state
            }
        })+
    };
}
keys_by_content!(MacAddress, Protocol);

impl Key for Endpoint {
    #[inline(always)]
    fn hash(&self, seed: u64) -> u64 {
        asterism_memory::hash::word(self.to_bits(), seed)
    }
    #[inline(always)]
    fn pack(&self, packed: Packed) -> Packed {
        // Without the byte that is zero.
        let bits = self.to_bits();
        packed.with(bits >> 32 << 24 | bits & 0xff_ffff, 56)
    }
    #[inline(always)]
    fn chain(&self, state: u64) -> u64 {
        state
    }
}

/// A flow's key: 13 bytes in two words.
impl Key for Flow4Key {
    #[inline(always)]
    fn hash(&self, seed: u64) -> u64 {
        asterism_memory::hash::words(self.0, self.1, seed)
    }
    #[inline(always)]
    fn pack(&self, packed: Packed) -> Packed {
        packed.with(self.0, 64).with(self.1, 64)
    }
    #[inline(always)]
    fn chain(&self, state: u64) -> u64 {
        state
    }
}

/// A [`Flow4`] as two words: cheap to compare and hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Flow4Key(u64, u64);

impl From<Flow4> for Flow4Key {
    #[inline(always)]
    fn from(flow: Flow4) -> Self {
        Self(
            u64::from(flow.source.to_bits()) << 32 | u64::from(flow.destination.to_bits()),
            u64::from(flow.protocol) << 32
                | u64::from(flow.source_port) << 16
                | u64::from(flow.destination_port),
        )
    }
}

impl From<Flow4Key> for Flow4 {
    fn from(key: Flow4Key) -> Self {
        Self {
            source: Ipv4Addr::from_bits((key.0 >> 32) as u32),
            destination: Ipv4Addr::from_bits(key.0 as u32),
            source_port: (key.1 >> 16) as u16,
            destination_port: key.1 as u16,
            protocol: (key.1 >> 32) as u8,
        }
    }
}

impl Wire for Flow4Key {
    const LAYOUT: u64 = manual("Flow4Key", 0);
    const BYTES_MAX: usize = 15;
    fn encode(&self, out: &mut Writer<'_>) {
        let flow = Flow4::from(*self);
        flow.source.encode(out);
        flow.destination.encode(out);
        out.u16(flow.source_port);
        out.u16(flow.destination_port);
        out.u8(flow.protocol);
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let source = Ipv4Addr::decode(input)?;
        let destination = Ipv4Addr::decode(input)?;
        let (source_port, destination_port) = (input.u16()?, input.u16()?);
        Ok(Flow4 {
            source,
            destination,
            source_port,
            destination_port,
            protocol: input.u8()?,
        }
        .into())
    }
}

/// The symmetric key of a flow of either family, by its hash: for state that need not tell two flows apart
/// with certainty. Two flows share one with a chance of 2⁻⁶⁴.
pub fn flow_digest(key: &FlowKey) -> u64 {
    key.hash(0)
}
