//! Packets' endpoints and addresses as bytes.

use core::net::{Ipv4Addr, Ipv6Addr};

use asterism_packet::{Endpoint, MacAddress, Protocol};

use crate::layout::manual;
use crate::wire::{BadBytes, Reader, Wire, Writer};

impl Wire for Ipv4Addr {
    const LAYOUT: u64 = manual("Ipv4Addr", 0);
    const BYTES_MAX: usize = 5;
    #[inline]
    fn encode(&self, out: &mut Writer<'_>) {
        out.address(self.to_bits());
    }
    #[inline]
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        input.address().map(Self::from_bits)
    }
}

impl Wire for Ipv6Addr {
    const LAYOUT: u64 = manual("Ipv6Addr", 0);
    const BYTES_MAX: usize = 16;
    #[inline]
    fn encode(&self, out: &mut Writer<'_>) {
        out.raw(&self.octets());
    }
    #[inline]
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        <[u8; 16]>::decode(input).map(Self::from)
    }
}

/// Its six bytes, as in a frame.
impl Wire for MacAddress {
    const LAYOUT: u64 = manual("MacAddress", 0);
    const BYTES_MAX: usize = 6;
    #[inline]
    fn encode(&self, out: &mut Writer<'_>) {
        out.raw(&self.0);
    }
    #[inline]
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Wire::decode(input).map(Self)
    }
}

/// Its number.
impl Wire for Protocol {
    const LAYOUT: u64 = manual("Protocol", 0);
    const BYTES_MAX: usize = 1;
    #[inline]
    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(self.0);
    }
    #[inline]
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        input.u8().map(Self)
    }
}

impl Wire for Endpoint {
    const LAYOUT: u64 = manual("Endpoint", 0);
    const BYTES_MAX: usize = 8;
    #[inline]
    fn encode(&self, out: &mut Writer<'_>) {
        out.address(self.address.to_bits());
        out.u16(self.port);
        out.u8(self.protocol.0);
    }
    #[inline]
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let address = Ipv4Addr::from_bits(input.address()?);
        Ok(Self::new(address, input.u16()?, Protocol(input.u8()?)))
    }
}
