//! What a NAT logs as messages of IPFIX or NetFlow version 9: the events of RFC 8158. For the control plane: encodes, sends
//! nothing.

use crate::ipfix::{Export, Messages, Template};
use asterism_translation::{NatEvent, NatEventKind};

/// Of a block: when, what, subscriber, outside address, first and last port, step, ports (RFC 8158, a subset). The first port stands
/// there as `postNAPTSourceTransportPort` too: nfdump 1.7.1 reads no ranges of ports from IPFIX.
const BLOCK: Template = Template {
    number: 258,
    elements: &[
        (323, 8),
        (230, 1),
        (8, 4),
        (225, 4),
        (227, 2),
        (361, 2),
        (362, 2),
        (363, 2),
        (364, 2),
    ],
};
/// Of a binding: when, what, inside and outside address and port, protocol (RFC 8158, a subset).
const BINDING: Template = Template {
    number: 259,
    elements: &[
        (323, 8),
        (230, 1),
        (8, 4),
        (225, 4),
        (7, 2),
        (227, 2),
        (4, 1),
    ],
};

/// The number of an event (RFC 8158, `natEvent`).
#[must_use]
pub const fn nat_event(kind: NatEventKind) -> u8 {
    match kind {
        NatEventKind::BindingMade => 8,
        NatEventKind::BindingEnded => 9,
        NatEventKind::BlockAllocated => 16,
        NatEventKind::BlockFreed => 17,
    }
}

/// One exporting process of NAT events: numbers its messages.
#[derive(Clone, Debug)]
pub struct EventExporter(Messages);

impl EventExporter {
    /// An exporting process of an observation domain.
    #[must_use]
    pub fn new(domain: u32) -> Self {
        Self(Messages::new(domain, &[BLOCK, BINDING]))
    }

    /// The same by another protocol than IPFIX.
    #[must_use]
    pub fn by(self, export: Export) -> Self {
        Self(self.0.by(export))
    }

    /// Takes an event; `send` is given a message each time that one is full. `now_s` is the time of the export since 1970.
    pub fn add(&mut self, event: &NatEvent, now_s: u64, send: impl FnMut(&[u8]) -> bool) {
        let is_of_block = event.kind.is_of_block();
        let template = if is_of_block { BLOCK } else { BINDING };
        self.0.add(&template, now_s, send, |out| {
            out.extend((u64::from(event.at) * 1_000).to_be_bytes());
            out.push(nat_event(event.kind));
            out.extend(event.inside.address.octets());
            out.extend(event.outside.octets());
            let (first, last) = event.ports;
            if is_of_block {
                for number in [first, first, last, 1, (last - first).wrapping_add(1)] {
                    out.extend(number.to_be_bytes());
                }
            } else {
                out.extend(event.inside.port.to_be_bytes());
                out.extend(first.to_be_bytes());
                out.push(event.inside.protocol.0);
            }
        });
    }

    /// Sends what waits for a full message.
    pub fn finish(&mut self, now_s: u64, send: impl FnMut(&[u8]) -> bool) {
        self.0.finish(now_s, send);
    }
}
