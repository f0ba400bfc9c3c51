//! On which side of a function a packet of a capture belongs.
//!
//! A capture taken on one link holds both directions as they are on that link. A function whose settings tell the sides apart has a
//! [`Direction`] of its own, beside its settings.

use std::collections::BTreeMap;
use std::net::IpAddr;

use asterism_function::{FlowKey, NetworkFunction, Packet, PortNumber};

use crate::wiring::{INSIDE, OUTSIDE};

/// On which side a packet belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It comes in by this port.
    From(PortNumber),
    /// It cannot be replayed; why.
    Skip(&'static str),
}

/// Says where packets of a capture come in, and may edit them to what they would be there.
pub trait Direction<F: NetworkFunction> {
    /// The side of one packet. `states` are those of all instances.
    fn side(&mut self, bytes: &mut [u8], states: &mut dyn Iterator<Item = &F::State>) -> Side;
}

/// Anyone who speaks first in a flow is inside; answers come from outside.
#[derive(Clone, Debug, Default)]
pub struct FirstSpeaker {
    /// The source of each flow's first packet.
    first: BTreeMap<FlowKey, (IpAddr, u16)>,
}

/// Flows whose first speaker is remembered at most; packets of more come from inside.
const FLOWS_MAX: usize = 1 << 20;

impl<F: NetworkFunction> Direction<F> for FirstSpeaker {
    fn side(&mut self, bytes: &mut [u8], _: &mut dyn Iterator<Item = &F::State>) -> Side {
        let Ok(packet) = Packet::parse(bytes) else {
            return Side::From(INSIDE);
        };
        let source = match packet.flow4() {
            Some(flow) => (flow.source.into(), flow.source_port),
            None => {
                let ipv4 = packet.ipv4_source().map(IpAddr::from);
                match ipv4.or_else(|| packet.ipv6_source().map(IpAddr::from)) {
                    Some(address) => (address, 0),
                    None => return Side::From(INSIDE),
                }
            }
        };
        let key = FlowKey::of(&packet);
        if self.first.len() >= FLOWS_MAX && !self.first.contains_key(&key) {
            return Side::From(INSIDE);
        }
        let first = *self.first.entry(key).or_insert(source);
        Side::From(if first == source { INSIDE } else { OUTSIDE })
    }
}
