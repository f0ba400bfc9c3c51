//! Flows that end before their time: those that an operator chooses (`asterism flows end`), and after a reload those that the new
//! rules deny, where the firewall is set up so. The firewall tells which flows it knows, and gets its orders by frames that take the packets' path
//! into the state which of them end: so they end on all hosts.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use asterism_config::{Function, Settings};
use asterism_function::{Host, Vlan};
use asterism_functions::firewall::{
    Direction, ENDED_AT_ONCE_MAX, FLOWS_QUESTION, Flow, KnownFlow, end_frame,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::choice::{ChoiceError, chosen};
use super::manual::RefusedDocument;
use asterism_event_log::Event;
use asterism_host_view::{AskError, Asked, View};

/// How often, and how many times, an order goes to an instance that takes nothing up now.
const REPORTED_EVERY: Duration = Duration::from_millis(10);
const TELLS_MAX: u32 = 200;
/// How many times it is looked whether the flows have ended.
const LOOKS_MAX: u32 = 10;
/// Flows that an answer shows at most.
pub const FLOWS_SHOWN_MAX: usize = 64;
/// Addresses, and ports, that one command names at most: a flow has two ends.
pub const ENDS_MAX: usize = 2;

/// Addresses that begin alike, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The first of them.
    pub address: IpAddr,
    /// How many bits they have in common.
    pub length: u8,
}

impl Network {
    /// Whether an address is one of them. Families never meet.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differ = u64::from(own.to_bits() ^ other.to_bits());
                differ >> 32u8.saturating_sub(self.length) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differ = own.to_bits() ^ other.to_bits();
                let ignored = u32::from(128u8.saturating_sub(self.length));
                differ.checked_shr(ignored).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// Which flows are meant: those for which all holds that is said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowFilter {
    /// Each has one of its ends.
    #[serde(default)]
    pub addresses: Vec<Network>,
    /// Each is the port of one of its ends.
    #[serde(default)]
    pub ports: Vec<u16>,
    /// The number of its protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    /// The identifiers of its VLAN, outer before inner; 0 for a tag that is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<(u16, u16)>,
    /// The rules that the host has now would deny it.
    #[serde(default)]
    pub denied: bool,
}

impl FlowFilter {
    fn means(&self, known: &KnownFlow) -> bool {
        let ends = [Direction::Forth, Direction::Back].map(|end| known.flow.endpoint(end));
        let is_at = |network: &Network| {
            let is_there = |(host, _): &(Host, u16)| network.contains(host.address());
            ends.iter().any(is_there)
        };
        let has_port = |port: &u16| ends.iter().any(|(_, own)| own == port);
        self.addresses.iter().all(is_at)
            && self.ports.iter().all(has_port)
            && self
                .protocol
                .is_none_or(|number| number == known.flow.protocol().0)
            && self
                .vlan
                .is_none_or(|(outer, inner)| known.flow.vlan() == Vlan::new(outer, inner))
            && (!self.denied || known.is_denied)
    }
}

/// Which flows ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowsEndDocument {
    /// At each firewall.
    pub ended: Vec<EndedFlowsDocument>,
    /// Firewalls of which it is not known.
    pub refused: Vec<RefusedDocument>,
}

/// Which flows of a firewall ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedFlowsDocument {
    /// The function; in a chain the name of the stage.
    pub function: String,
    /// How many.
    pub ended: u64,
    /// How many of those meant are known still, or again: the rules let their next packet begin them.
    pub left: u64,
    /// The first of those that were meant, in words.
    pub flows: Vec<String>,
}

/// Those whose known flows end on a reload if the new rules deny them.
pub fn ending_on_reload(function: &Function) -> Vec<(String, Asked)> {
    Asked::each(
        function,
        |settings| matches!(settings, Settings::Firewall(firewall) if firewall.ends_denied),
    )
}

/// The flows that rules deny.
pub const DENIED: FlowFilter = FlowFilter {
    addresses: Vec::new(),
    ports: Vec::new(),
    protocol: None,
    vlan: None,
    denied: true,
};

/// The frames that end those of these flows which are meant.
pub fn frames(flows: &[Flow]) -> impl Iterator<Item = Vec<u8>> + '_ {
    flows.chunks(ENDED_AT_ONCE_MAX).map(end_frame)
}

/// Notes a flow if it is meant.
pub fn collect(filter: &FlowFilter, known: &KnownFlow, meant: &mut Vec<Flow>) {
    if filter.means(known) {
        meant.push(known.flow);
    }
}

/// Why no firewall was asked to end flows: none has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FlowsError {
    /// The host has no firewall.
    #[error(
        "this host's function knows no flows that can be ended: it needs [function.firewall], alone or in a chain"
    )]
    NoFirewall,
    /// No firewall has this name.
    #[error(transparent)]
    Choice(#[from] ChoiceError),
}

/// Ends the flows that are meant at all firewalls, or at one of them, and says so in the log.
///
/// # Errors
/// There is no such function; in words.
pub fn end(
    (view, events): (&View, &SyncSender<Event>),
    filter: &FlowFilter,
    function: Option<&str>,
) -> Result<FlowsEndDocument, FlowsError> {
    let mut done = FlowsEndDocument::default();
    if view.firewalls.is_empty() {
        return Err(FlowsError::NoFirewall);
    }
    for (name, asked) in chosen(&view.firewalls, function, "is no firewall here")? {
        match end_at(view, name, *asked, filter) {
            Ok(ended) => {
                say(&ended, "manually", events);
                done.ended.push(ended);
            }
            Err(why) => done.refused.push(RefusedDocument {
                function: name.clone(),
                why: why.to_string(),
            }),
        }
    }
    Ok(done)
}

/// After a reload: ends the flows that the rules deny now, at these firewalls, and says so in the log.
pub(crate) fn end_denied(view: &View, events: &SyncSender<Event>, firewalls: &[(String, Asked)]) {
    for (name, asked) in firewalls {
        match end_at(view, name, *asked, &DENIED) {
            Ok(ended) => say(&ended, "reload", events),
            Err(why) => {
                let event = Event::warning("flows-not-ended")
                    .with("function", name)
                    .with("why", why)
                    .effect("flows that the new rules deny may go on")
                    .cure("`asterism flows end --denied`");
                let _ = events.try_send(event);
            }
        }
    }
}

fn say(ended: &EndedFlowsDocument, by: &str, events: &SyncSender<Event>) {
    if ended.flows.is_empty() {
        return;
    }
    let event = Event::info("flows-ended")
        .with("function", &ended.function)
        .with("by", by)
        .with("ended", ended.ended)
        .with("left", ended.left)
        .effect("the next packet of each is for the rules to decide, on all hosts");
    let _ = events.try_send(event);
}

fn end_at(
    view: &View,
    name: &str,
    asked: Asked,
    filter: &FlowFilter,
) -> Result<EndedFlowsDocument, AskError> {
    let mut meant = Vec::new();
    view.records(asked, FLOWS_QUESTION, |known: KnownFlow| {
        collect(filter, &known, &mut meant);
    })?;
    for frame in frames(&meant) {
        tell(view, asked, &frame)?;
    }
    let reported: BTreeSet<Flow> = meant.iter().copied().collect();
    let mut left = 0;
    // Those that begin at once again are known, however often one looks.
    for look in 0..LOOKS_MAX {
        if look > 0 {
            std::thread::park_timeout(REPORTED_EVERY);
        }
        left = 0;
        if !reported.is_empty() {
            view.records(asked, FLOWS_QUESTION, |known: KnownFlow| {
                left += u64::from(reported.contains(&known.flow));
            })?;
        }
        if left == 0 {
            break;
        }
    }
    Ok(EndedFlowsDocument {
        function: name.to_owned(),
        ended: (reported.len() as u64).saturating_sub(left),
        left,
        flows: meant
            .iter()
            .take(FLOWS_SHOWN_MAX)
            .map(|flow| format!("{flow:?}"))
            .collect(),
    })
}

/// Tells a firewall by a frame, and again while its log is full of what others have not acknowledged.
fn tell(view: &View, asked: Asked, frame: &[u8]) -> Result<(), AskError> {
    let mut tells = 1;
    loop {
        match view.tell(asked, frame.to_vec()) {
            Err(_) if tells < TELLS_MAX => std::thread::park_timeout(REPORTED_EVERY),
            result => return result,
        }
        tells += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_hold_addresses_of_their_family_alone() {
        let network = |address: &str, length| Network {
            address: address.parse().unwrap(),
            length,
        };
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        for (of, length, other, holds) in [
            ("10.0.0.0", 8, "10.255.0.1", true),
            ("10.0.0.0", 8, "11.0.0.1", false),
            ("10.0.0.7", 32, "10.0.0.7", true),
            ("10.0.0.7", 32, "10.0.0.6", false),
            ("0.0.0.0", 0, "203.0.113.1", true),
            ("0.0.0.0", 0, "2001:db8::1", false),
            ("::", 0, "2001:db8::1", true),
            ("::", 0, "10.0.0.7", false),
            ("::ffff:10.0.0.0", 104, "10.0.0.7", false),
            ("2001:db8::", 32, "2001:db8:ffff::1", true),
            ("2001:db8::", 32, "2001:db9::1", false),
            ("2001:db8::7", 128, "2001:db8::7", true),
            ("2001:db8::7", 128, "2001:db8::6", false),
        ] {
            let held = network(of, length).contains(address(other));
            assert_eq!(held, holds, "{of}/{length}: {other}");
        }
    }
}
