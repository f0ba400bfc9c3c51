//! Flow records as messages of IPFIX (RFC 7011, information elements of RFC 7012) or NetFlow version 9. For the control plane:
//! encodes, sends nothing.

use core::net::IpAddr;

use asterism_function::{Tick, Wire};

use super::{Flow, Observed};
pub use crate::ipfix::MESSAGE_BYTES_MAX;
use crate::ipfix::{Export, Messages, Template};

/// What a flow had in an interval, over all instances.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire)]
pub struct FlowRecord {
    /// The flow.
    pub flow: Flow,
    /// Its VLAN, or 0.
    pub vlan: u16,
    /// Type and code of ICMP: see [`Observed::icmp`].
    pub icmp: u16,
    /// Its flags of fragmentation: see [`Observed::fragment_flags`].
    pub fragment_flags: u8,
    /// Its packets.
    pub packets: u64,
    /// Bytes of its IP packets, headers included, as `octetDeltaCount` wants them.
    pub bytes: u64,
}

impl FlowRecord {
    /// A record without packets.
    #[must_use]
    pub const fn of(observed: Observed) -> Self {
        let Observed {
            flow,
            vlan,
            icmp,
            fragment_flags,
        } = observed;
        Self {
            flow,
            vlan,
            icmp,
            fragment_flags,
            packets: 0,
            bytes: 0,
        }
    }
}

/// Information elements: the addresses of either version; ports, protocol, type and code of ICMP, VLAN, flags of fragmentation, octets and
/// packets since the last report, start and end in milliseconds.
const TEMPLATE_4: Template = Template {
    number: 256,
    elements: &[
        (8, 4),
        (12, 4),
        (7, 2),
        (11, 2),
        (4, 1),
        (32, 2),
        (58, 2),
        (197, 1),
        (1, 8),
        (2, 8),
        (152, 8),
        (153, 8),
    ],
};
const TEMPLATE_6: Template = Template {
    number: 257,
    elements: &[
        (27, 16),
        (28, 16),
        (7, 2),
        (11, 2),
        (4, 1),
        (139, 2),
        (58, 2),
        (197, 1),
        (1, 8),
        (2, 8),
        (152, 8),
        (153, 8),
    ],
};

/// The interval that records are of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Its first second, since 1970.
    pub start_s: u64,
    /// Its length in seconds.
    pub length_s: Tick,
}

/// One exporting process of flows: numbers its messages.
#[derive(Clone, Debug)]
pub struct Exporter(Messages);

impl Exporter {
    /// An exporting process of an observation domain.
    #[must_use]
    pub fn new(domain: u32) -> Self {
        Self(Messages::new(domain, &[TEMPLATE_4, TEMPLATE_6]))
    }

    /// The same by another protocol than IPFIX.
    #[must_use]
    pub fn by(self, export: Export) -> Self {
        Self(self.0.by(export))
    }

    /// Data records sent so far, modulo 2³².
    #[must_use]
    pub fn sequence(&self) -> u32 {
        self.0.sequence()
    }

    /// Takes a record of an interval; `send` is given a message each time that one is full. `now_s` is the time of the
    /// export since 1970.
    pub fn add(
        &mut self,
        record: &FlowRecord,
        span: Span,
        now_s: u64,
        send: impl FnMut(&[u8]) -> bool,
    ) {
        let flow = &record.flow;
        let is_ipv4 = flow.is_ipv4();
        let template = if is_ipv4 { TEMPLATE_4 } else { TEMPLATE_6 };
        self.0.add(&template, now_s, send, |out| {
            for host in [flow.source, flow.destination] {
                match host.address() {
                    IpAddr::V4(address) if is_ipv4 => out.extend(address.octets()),
                    IpAddr::V4(address) => out.extend(address.to_ipv6_mapped().octets()),
                    IpAddr::V6(address) => out.extend(address.octets()),
                }
            }
            out.extend(flow.source_port.to_be_bytes());
            out.extend(flow.destination_port.to_be_bytes());
            out.push(flow.protocol);
            out.extend(record.icmp.to_be_bytes());
            out.extend(record.vlan.to_be_bytes());
            out.push(record.fragment_flags);
            out.extend(record.bytes.to_be_bytes());
            out.extend(record.packets.to_be_bytes());
            let end_s = span.start_s.saturating_add(span.length_s.into());
            for milliseconds in [
                span.start_s.saturating_mul(1_000),
                end_s.saturating_mul(1_000).saturating_sub(1),
            ] {
                out.extend(milliseconds.to_be_bytes());
            }
        });
    }

    /// Sends what waits for a full message.
    pub fn finish(&mut self, now_s: u64, send: impl FnMut(&[u8]) -> bool) {
        self.0.finish(now_s, send);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipfix::{HEADER, HEADER_9, SET_HEADER, TEMPLATE_EVERY};

    fn record(number: u32, of_ipv6: bool) -> FlowRecord {
        let host = if of_ipv6 {
            core::net::Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(number)).into()
        } else {
            core::net::Ipv4Addr::from_bits(0x0a00_0000 | number).into()
        };
        let flow = Flow {
            source: host,
            destination: host,
            source_port: 1,
            destination_port: 2,
            protocol: 6,
        };
        FlowRecord {
            packets: u64::from(number),
            bytes: 1_000,
            ..FlowRecord::of(Observed::of_flow(flow))
        }
    }

    #[test]
    fn messages_are_framed_numbered_and_bounded() {
        framed(Export::Ipfix);
        framed(Export::NetFlow9);
    }

    fn framed(export: Export) {
        let span = Span {
            start_s: 1_700_000_000,
            length_s: 60,
        };
        let mut exporter = Exporter::new(7).by(export);
        let mut messages: Vec<Vec<u8>> = Vec::new();
        for number in 0..2_000 {
            exporter.add(&record(number, number % 100 < 30), span, 9, |message| {
                messages.push(message.to_vec());
                true
            });
        }
        exporter.finish(9, |message| {
            messages.push(message.to_vec());
            true
        });
        exporter.finish(9, |_| panic!("nothing waits"));
        let mut records = 0;
        for (place, message) in messages.iter().enumerate() {
            let word = |at: usize| usize::from(u16::from_be_bytes([message[at], message[at + 1]]));
            assert!(message.len() <= MESSAGE_BYTES_MAX);
            let long = |at: usize| u32::from_be_bytes(message[at..at + 4].try_into().unwrap());
            let has_templates = place % TEMPLATE_EVERY as usize == 0;
            let mut at = match export {
                Export::Ipfix => {
                    assert_eq!((word(0), word(2)), (10, message.len()));
                    assert_eq!((long(4), long(8), long(12)), (9, records, 7));
                    HEADER
                }
                Export::NetFlow9 => {
                    assert_eq!((word(0), message.len() % 4), (9, 0));
                    assert_eq!((long(4), long(8)), (0, 9));
                    assert_eq!((long(12), long(16)), (place as u32, 7));
                    HEADER_9
                }
            };
            if has_templates {
                assert_eq!(word(at), if export == Export::Ipfix { 2 } else { 0 });
                at += word(at + 2);
            }
            let bytes = match word(at) {
                256 => TEMPLATE_4.record_bytes(),
                257 => TEMPLATE_6.record_bytes(),
                other => panic!("set {other}"),
            };
            assert_eq!(at + word(at + 2), message.len());
            let fill = (word(at + 2) - SET_HEADER) % bytes;
            let of_message = ((word(at + 2) - SET_HEADER) / bytes) as u32;
            match export {
                Export::Ipfix => assert_eq!(fill, 0),
                Export::NetFlow9 => {
                    assert!(fill < 4);
                    assert_eq!(
                        word(2) as u32,
                        of_message + if has_templates { 2 } else { 0 }
                    );
                }
            }
            records += of_message;
        }
        assert_eq!((records, exporter.sequence()), (2_000, 2_000));
    }
}
