//! Flows that end before their time: those that an operator chooses (`asterism flows end`), and after a reload those that the new
//! rules deny, where the firewall is set up so. The firewall tells which flows it knows, and gets its orders by frames that take the packets' path
//! into the state which of them end: so they end on all hosts.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use asterism_config::{Function, Settings};
use asterism_function::{Host, Vlan, Wire, Writer};
use asterism_functions::firewall::{Direction, ENDED_AT_ONCE_MAX, Flow, KnownFlow, end_frame};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::choice::{ChoiceError, chosen};
use super::manual::RefusedDocument;
use super::reported::{self, Reported, Wanted};
use asterism_event_log::Event;
use asterism_host_view::{AskError, Asked, View};

/// How often, and how many times, an order goes to an instance that takes nothing up now.
const REPORTED_EVERY: Duration = Duration::from_millis(10);
const TELLS_MAX: u32 = 200;
/// How many times it is looked whether the flows have ended.
const LOOKS_MAX: u32 = 10;
/// Orders that a packet loop has at a time for flows in a store: fewer than it parks packets of one kind.
const STORE_ORDERS_MAX: usize = 32;
/// Flows in a store that one command ends at most.
const STORE_FLOWS_MAX: usize = 1 << 20;
/// How long flows in a store are searched at most, and when the last order goes out: those who ask wait for 120 s.
const STORE_SEARCH_MAX: Duration = Duration::from_secs(60);
const STORE_ORDERS_UNTIL: Duration = Duration::from_secs(100);
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
        let refused = |why: String| RefusedDocument {
            function: name.clone(),
            why,
        };
        match end_at(view, name, *asked, filter) {
            Ok((ended, unknown)) => {
                say(&ended, "manually", events);
                done.ended.push(ended);
                done.refused.extend(unknown.map(refused));
            }
            Err(why) => done.refused.push(refused(why.to_string())),
        }
    }
    Ok(done)
}

/// After a reload: ends the flows that the rules deny now, at these firewalls, and says so in the log.
pub(crate) fn end_denied(view: &View, events: &SyncSender<Event>, firewalls: &[(String, Asked)]) {
    for (name, asked) in firewalls {
        let why = match end_at(view, name, *asked, &DENIED) {
            Ok((ended, unknown)) => {
                say(&ended, "reload", events);
                unknown
            }
            Err(why) => Some(why.to_string()),
        };
        if let Some(why) = why {
            let event = Event::warning("flows-not-ended")
                .with("function", name)
                .with("why", why)
                .effect("flows that the new rules deny may go on")
                .cure("`asterism flows end --denied`");
            let _ = events.try_send(event);
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

/// Ends flows of a firewall; which ended, and why that is not known of all.
fn end_at(
    view: &View,
    name: &str,
    asked: Asked,
    filter: &FlowFilter,
) -> Result<(EndedFlowsDocument, Option<String>), AskError> {
    let reported = Reported::of(view, (name, asked), reported::FLOWS);
    let begun_us = view.uptime_us();
    let mut meant = Vec::new();
    let mut unknown = reported.records(
        |_| Wanted::All,
        STORE_SEARCH_MAX,
        |known: KnownFlow| {
            // Of a store no capacity here is the bound; one more shows that there are more.
            if !reported.is_in_store() || meant.len() <= STORE_FLOWS_MAX {
                collect(filter, &known, &mut meant);
            }
        },
    )?;
    // A search of a store may find a flow twice.
    let mut seen = BTreeSet::new();
    meant.retain(|flow| seen.insert(*flow));
    let mut left = Vec::new();
    if reported.is_in_store() && meant.len() > STORE_FLOWS_MAX {
        meant.truncate(STORE_FLOWS_MAX);
        unknown.push("there are more flows: give the order again".to_owned());
    }
    let orders = orders(
        &mut meant,
        reported.is_in_store() && view.store.has_shards(),
    );
    let at_a_time = match reported.is_in_store() {
        false => orders.len().max(1),
        true => STORE_ORDERS_MAX,
    };
    let mut rounds = orders.chunks(at_a_time);
    for some in rounds.by_ref() {
        let (still, why) = end_some(view, asked, &reported, some)?;
        left.extend(still);
        unknown.extend(why);
        let until_us = begun_us + STORE_ORDERS_UNTIL.as_micros() as u64;
        if reported.is_in_store() && view.uptime_us() > until_us {
            break;
        }
    }
    let not_ordered: usize = rounds.flatten().map(|order| order.len()).sum();
    if not_ordered > 0 {
        let order = format!("for {not_ordered} flows there was no time: give the order again");
        unknown.push(order);
    }
    let left = (left.len() + not_ordered) as u64;
    let ended = EndedFlowsDocument {
        function: name.to_owned(),
        ended: (meant.len() as u64).saturating_sub(left),
        left,
        flows: meant
            .iter()
            .take(FLOWS_SHOWN_MAX)
            .map(|flow| format!("{flow:?}"))
            .collect(),
    };
    unknown.dedup();
    let unknown = (!unknown.is_empty()).then(|| unknown.join("; "));
    Ok((ended, unknown))
}

/// The flows of each order, in which a packet reads all of them. In a store of several shards it is of one, so its flows are all between the
/// same two addresses: flows are sorted by these then.
fn orders(flows: &mut [Flow], in_shards: bool) -> Vec<&[Flow]> {
    let between = |flow: &Flow| {
        let ends = [Direction::Forth, Direction::Back].map(|end| flow.endpoint(end));
        let [one, other] = ends.map(|(host, _)| host.address());
        (one.min(other), one.max(other))
    };
    if in_shards {
        flows.sort_by_cached_key(between);
    }
    flows
        .chunk_by(|one, next| !in_shards || between(one) == between(next))
        .flat_map(|some| some.chunks(ENDED_AT_ONCE_MAX))
        .collect()
}

/// Ends the flows of these orders; which of them are known still, or again, and of which that is not known.
fn end_some(
    view: &View,
    asked: Asked,
    reported: &Reported<'_>,
    orders: &[&[Flow]],
) -> Result<(Vec<Flow>, Vec<String>), AskError> {
    for order in orders {
        tell(view, asked, &end_frame(order))?;
    }
    let ended: BTreeSet<Flow> = orders.iter().copied().flatten().copied().collect();
    let row = |flow: &Flow| {
        let mut row = Vec::new();
        flow.encode(&mut Writer::new(&mut row, &[]));
        row
    };
    let rows: Vec<_> = ended.iter().map(row).collect();
    let (mut left, mut unknown) = (BTreeSet::new(), Vec::new());
    // Those that begin at once again are known, however often one looks.
    for look in 0..LOOKS_MAX {
        if look > 0 {
            std::thread::park_timeout(REPORTED_EVERY);
        }
        left.clear();
        if !ended.is_empty() {
            unknown = reported.records(
                |_| Wanted::Rows(rows.clone()),
                STORE_SEARCH_MAX,
                |known: KnownFlow| {
                    if ended.contains(&known.flow) {
                        left.insert(known.flow);
                    }
                },
            )?;
        }
        if left.is_empty() {
            break;
        }
    }
    Ok((left.into_iter().collect(), unknown))
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
    use asterism_function::Reader;
    use core::net::Ipv4Addr;

    #[test]
    fn an_order_has_as_many_flows_as_a_packet_reads_and_in_shards_those_of_one_conversation() {
        let flow = |client: u8, port: u16| {
            let mut bytes = Vec::new();
            let mut out = Writer::new(&mut bytes, &[]);
            let mut ends = [client, 200].map(|last| Host::from(Ipv4Addr::new(10, 0, 0, last)));
            // Some of the other direction, which is of the same conversation.
            if port.is_multiple_of(2) {
                ends.reverse();
            }
            ends.iter().for_each(|end| end.encode(&mut out));
            [port, 80].encode(&mut out);
            out.varint(6);
            Flow::decode(&mut Reader::new(&bytes, &[])).unwrap()
        };
        let mut flows = Vec::new();
        for port in 0..20 {
            flows.extend([1, 2, 3].map(|client| flow(client, port)));
        }
        let all: BTreeSet<Flow> = flows.iter().copied().collect();
        for in_shards in [false, true] {
            let mut meant = flows.clone();
            let orders = orders(&mut meant, in_shards);
            let ordered: Vec<Flow> = orders.iter().copied().flatten().copied().collect();
            assert_eq!(ordered.len(), flows.len());
            assert_eq!(ordered.into_iter().collect::<BTreeSet<_>>(), all);
            let sizes: Vec<usize> = orders.iter().map(|order| order.len()).collect();
            match in_shards {
                false => assert_eq!(sizes, [8, 8, 8, 8, 8, 8, 8, 4]),
                true => assert_eq!(sizes, [8, 8, 4, 8, 8, 4, 8, 8, 4]),
            }
        }
    }

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
