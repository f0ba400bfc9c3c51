//! Flow records as IPFIX messages (RFC 7011, information elements of RFC 7012). For the control plane: encodes, sends nothing.
//!
//! A message is one UDP datagram: the header, templates where they are due, and one data set of either IP version.

use core::net::IpAddr;

use asterism_function::Tick;

use super::Flow;

/// What a flow had in an interval, over all instances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowRecord {
    /// The flow.
    pub flow: Flow,
    /// Its packets.
    pub packets: u64,
    /// Bytes of its IP packets, headers included, as `octetDeltaCount` wants them.
    pub bytes: u64,
}

/// Bytes of a message at most: fits into one packet of an Ethernet with tunnels.
pub const MESSAGE_BYTES_MAX: usize = 1_400;
/// Messages between two that carry templates, which a collector that starts later needs (RFC 7011 §8.4).
const TEMPLATE_EVERY: u32 = 16;
/// The version in a message's header (RFC 7011 §3.1).
const VERSION: u16 = 10;
/// Bytes of a message's header, and of a set's.
const HEADER: usize = 16;
const SET_HEADER: usize = 4;
/// The set of templates (RFC 7011 §3.3.2), and the templates' numbers.
const TEMPLATES: u16 = 2;
const TEMPLATE_4: u16 = 256;
const TEMPLATE_6: u16 = 257;

/// Information elements after the addresses, with their lengths: ports, protocol, octets and packets since the last report,
/// start and end in milliseconds.
const ELEMENTS: [(u16, u16); 7] = [(7, 2), (11, 2), (4, 1), (1, 8), (2, 8), (152, 8), (153, 8)];
/// Source and destination address of either version.
const ADDRESSES_4: [(u16, u16); 2] = [(8, 4), (12, 4)];
const ADDRESSES_6: [(u16, u16); 2] = [(27, 16), (28, 16)];
const RECORD_BYTES_4: usize = 45;
const RECORD_BYTES_6: usize = 69;

/// The interval that records are of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Its first second, since 1970.
    pub start_s: u64,
    /// Its length in seconds.
    pub length_s: Tick,
}

/// One exporting process: numbers its messages.
#[derive(Clone, Debug)]
pub struct Exporter {
    /// The observation domain (RFC 7011 §3.1), which tells the hosts of a cluster apart.
    domain: u32,
    /// Data records sent before.
    sequence: u32,
    messages: u32,
    waiting: Vec<u8>,
    set: u16,
    records: u32,
}

impl Exporter {
    /// An exporting process of an observation domain.
    #[must_use]
    pub fn new(domain: u32) -> Self {
        Self {
            domain,
            sequence: 0,
            messages: 0,
            waiting: Vec::with_capacity(MESSAGE_BYTES_MAX),
            set: 0,
            records: 0,
        }
    }

    /// Data records sent so far, modulo 2³².
    #[must_use]
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Takes a record of an interval; `send` is given a message each time that one is full. `now_s` is the time of the
    /// export since 1970.
    pub fn add(
        &mut self,
        record: &FlowRecord,
        span: Span,
        now_s: u64,
        mut send: impl FnMut(&[u8]),
    ) {
        let (template, length) = if record.flow.is_ipv4() {
            (TEMPLATE_4, RECORD_BYTES_4)
        } else {
            (TEMPLATE_6, RECORD_BYTES_6)
        };
        let is_full = self.waiting.len() + length > MESSAGE_BYTES_MAX;
        if self.records > 0 && (self.set != template || is_full) {
            self.finish(now_s, &mut send);
        }
        if self.records == 0 {
            self.begin(template);
        }
        let flow = &record.flow;
        for host in [flow.source, flow.destination] {
            match (host.address(), template) {
                (IpAddr::V4(address), TEMPLATE_4) => self.waiting.extend(address.octets()),
                (IpAddr::V4(address), _) => {
                    self.waiting.extend(address.to_ipv6_mapped().octets());
                }
                (IpAddr::V6(address), _) => self.waiting.extend(address.octets()),
            }
        }
        self.waiting.extend(flow.source_port.to_be_bytes());
        self.waiting.extend(flow.destination_port.to_be_bytes());
        self.waiting.push(flow.protocol);
        self.waiting.extend(record.bytes.to_be_bytes());
        self.waiting.extend(record.packets.to_be_bytes());
        let end_s = span.start_s.saturating_add(span.length_s.into());
        for milliseconds in [
            span.start_s.saturating_mul(1_000),
            end_s.saturating_mul(1_000).saturating_sub(1),
        ] {
            self.waiting.extend(milliseconds.to_be_bytes());
        }
        self.records += 1;
    }

    /// Sends what waits for a full message.
    pub fn finish(&mut self, now_s: u64, mut send: impl FnMut(&[u8])) {
        if self.records == 0 {
            return;
        }
        let length = self.waiting.len();
        let set_at = self.set_at();
        put(&mut self.waiting, 2, length as u16);
        put(&mut self.waiting, set_at + 2, (length - set_at) as u16);
        self.waiting[4..8].copy_from_slice(&(now_s as u32).to_be_bytes());
        send(&self.waiting);
        self.sequence = self.sequence.wrapping_add(self.records);
        self.messages = self.messages.wrapping_add(1);
        self.records = 0;
        self.waiting.clear();
    }

    fn has_templates(&self) -> bool {
        self.messages.is_multiple_of(TEMPLATE_EVERY)
    }

    /// Where the data set begins.
    fn set_at(&self) -> usize {
        HEADER
            + if self.has_templates() {
                template_set_bytes()
            } else {
                0
            }
    }

    fn begin(&mut self, template: u16) {
        self.waiting.clear();
        self.set = template;
        self.waiting.extend(VERSION.to_be_bytes());
        self.waiting.extend([0; 6]);
        self.waiting.extend(self.sequence.to_be_bytes());
        self.waiting.extend(self.domain.to_be_bytes());
        if self.has_templates() {
            self.waiting.extend(TEMPLATES.to_be_bytes());
            self.waiting
                .extend((template_set_bytes() as u16).to_be_bytes());
            for (number, addresses) in [(TEMPLATE_4, ADDRESSES_4), (TEMPLATE_6, ADDRESSES_6)] {
                let fields = addresses.len() + ELEMENTS.len();
                self.waiting.extend(number.to_be_bytes());
                self.waiting.extend((fields as u16).to_be_bytes());
                for (element, bytes) in addresses.iter().chain(&ELEMENTS) {
                    self.waiting.extend(element.to_be_bytes());
                    self.waiting.extend(bytes.to_be_bytes());
                }
            }
        }
        self.waiting.extend(template.to_be_bytes());
        self.waiting.extend([0; 2]);
    }
}

/// Bytes of the set of both templates.
const fn template_set_bytes() -> usize {
    SET_HEADER + 2 * (4 + 4 * (ADDRESSES_4.len() + ELEMENTS.len()))
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u32, of_ipv6: bool) -> FlowRecord {
        let host = if of_ipv6 {
            core::net::Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(number)).into()
        } else {
            core::net::Ipv4Addr::from_bits(0x0a00_0000 | number).into()
        };
        FlowRecord {
            flow: Flow {
                source: host,
                destination: host,
                source_port: 1,
                destination_port: 2,
                protocol: 6,
            },
            packets: u64::from(number),
            bytes: 1_000,
        }
    }

    #[test]
    fn lengths_of_elements_add_up() {
        let sum = |of: &[(u16, u16)]| {
            of.iter()
                .map(|(_, bytes)| usize::from(*bytes))
                .sum::<usize>()
        };
        assert_eq!(sum(&ADDRESSES_4) + sum(&ELEMENTS), RECORD_BYTES_4);
        assert_eq!(sum(&ADDRESSES_6) + sum(&ELEMENTS), RECORD_BYTES_6);
    }

    #[test]
    fn messages_are_framed_numbered_and_bounded() {
        let span = Span {
            start_s: 1_700_000_000,
            length_s: 60,
        };
        let mut exporter = Exporter::new(7);
        let mut messages: Vec<Vec<u8>> = Vec::new();
        for number in 0..2_000 {
            exporter.add(&record(number, number % 100 < 30), span, 9, |message| {
                messages.push(message.to_vec());
            });
        }
        exporter.finish(9, |message| messages.push(message.to_vec()));
        exporter.finish(9, |_| panic!("nothing waits"));
        let mut records = 0;
        for (place, message) in messages.iter().enumerate() {
            let word = |at: usize| usize::from(u16::from_be_bytes([message[at], message[at + 1]]));
            assert!(message.len() <= MESSAGE_BYTES_MAX);
            assert_eq!((word(0), word(2)), (10, message.len()));
            let sequence = u32::from_be_bytes(message[8..12].try_into().unwrap());
            assert_eq!(sequence, records);
            let mut at = HEADER;
            if place % TEMPLATE_EVERY as usize == 0 {
                assert_eq!(word(at), 2);
                at += word(at + 2);
            }
            let bytes = match word(at) {
                256 => RECORD_BYTES_4,
                257 => RECORD_BYTES_6,
                other => panic!("set {other}"),
            };
            assert_eq!(at + word(at + 2), message.len());
            assert_eq!((word(at + 2) - SET_HEADER) % bytes, 0);
            records += ((word(at + 2) - SET_HEADER) / bytes) as u32;
        }
        assert_eq!((records, exporter.sequence()), (2_000, 2_000));
    }
}
