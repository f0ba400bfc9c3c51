//! Datagrams put together from what left, to be compared however they were cut.

use std::collections::BTreeMap;

use crate::fields::{Field, fields};
use crate::wire::{self, Ip};

/// Names a fragmented datagram: side, source, destination, protocol, identification.
pub(crate) type Name = (bool, u32, u32, u8, u16);

/// The name of the datagram that a frame is a fragment of.
pub(crate) fn name(outside: bool, frame: &[u8]) -> Option<Name> {
    let ip = Ip::of(frame).filter(Ip::is_fragment)?;
    Some((
        outside,
        ip.source.to_bits(),
        ip.destination.to_bits(),
        ip.protocol,
        ip.identification,
    ))
}

/// What was seen of a datagram.
#[derive(Clone, Debug, Default)]
pub(crate) struct Datagram {
    /// Data by offset.
    parts: BTreeMap<usize, Vec<u8>>,
    /// Ethernet and IP header of the first fragment.
    header: Vec<u8>,
    length: Option<usize>,
}

impl Datagram {
    pub(crate) fn add(&mut self, frame: &[u8]) {
        let Some(ip) = Ip::of(frame) else { return };
        let data = frame[ip.body()].to_vec();
        if !ip.more {
            self.length = Some(ip.offset + data.len());
        }
        if ip.offset == 0 {
            self.header = frame[..ip.transport].to_vec();
        }
        self.parts.insert(ip.offset, data);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The fields of the whole datagram; `None` while a part is missing. Fragments that overlap are not put together.
    pub(crate) fn whole(&self) -> Option<Vec<Field>> {
        let length = self.length?;
        let mut data = Vec::with_capacity(length);
        for (offset, part) in &self.parts {
            if *offset != data.len() {
                return None;
            }
            data.extend_from_slice(part);
        }
        if data.len() != length || self.header.is_empty() {
            return None;
        }
        let mut frame = self.header.clone();
        frame.extend_from_slice(&data);
        let total = u16::try_from(frame.len() - wire::IP).ok()?;
        let header = self.header.len();
        wire::put(&mut frame, wire::IP + 2, total);
        // "More fragments" off, the other flags stay.
        frame[wire::IP + 6] &= 0xc0;
        wire::put(&mut frame, wire::IP + 10, 0);
        let sum = !wire::fold(wire::sum(&frame[wire::IP..header]));
        wire::put(&mut frame, wire::IP + 10, sum);
        Some(fields(&frame))
    }
}
