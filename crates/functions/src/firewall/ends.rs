//! Flows that end before their time: which are known, as a part of the firewall's `report`, and the order that ends some of them, by
//! a frame on the port [`CONTROL`](asterism_function::CONTROL). For the control side, which chooses: an operator's command, or a reload
//! after which flows that the new rules deny are to end.

use asterism_function::notice;
use asterism_function::records::Record;
use asterism_function::{Ask, Late, Reader, Reason, Verdict, Wire, Writer};
use asterism_tracking::{Flow, Track};

use super::rules::{Action, Query, destination_of};
use super::{Firewall, FirewallState};

/// The question of a `report` that [`KnownFlow`]s answer.
pub const FLOWS_QUESTION: u32 = notice::QUESTION - 3;
/// Flows that one order ends at most: what a packet may read at once, and their removals are one group of the state channel.
pub const ENDED_AT_ONCE_MAX: usize = 8;

/// A flow that is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire)]
pub struct KnownFlow {
    /// The flow.
    pub flow: Flow,
    /// Whether its first end opened it.
    pub is_first_opener: bool,
    /// Whether the rules that this host has now would deny it.
    pub is_denied: bool,
}

impl Record for KnownFlow {}

/// The Ethernet type of local experiments (IEEE 802).
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
const PAYLOAD_AT: usize = 14;
/// What an order to end flows begins with: a number that no order to block has.
const END_FLOWS: u8 = 16;

/// The frame that has a firewall end flows, the first [`ENDED_AT_ONCE_MAX`] of these.
#[must_use]
pub fn end_frame(flows: &[Flow]) -> Vec<u8> {
    let mut frame = vec![0; PAYLOAD_AT];
    frame[PAYLOAD_AT - 2..].copy_from_slice(&ETHERTYPE);
    let mut out = Writer::new(&mut frame, &[]);
    out.u8(END_FLOWS);
    for flow in flows.iter().take(ENDED_AT_ONCE_MAX) {
        flow.encode(&mut out);
    }
    frame
}

/// The flows that a frame names; `None` if it is no such frame.
fn named(frame: &[u8]) -> Option<[Option<Flow>; ENDED_AT_ONCE_MAX]> {
    if frame.get(PAYLOAD_AT - 2..PAYLOAD_AT)? != ETHERTYPE {
        return None;
    }
    let mut input = Reader::new(frame.get(PAYLOAD_AT..)?, &[]);
    if input.u8().ok()? != END_FLOWS {
        return None;
    }
    let mut flows = [None; ENDED_AT_ONCE_MAX];
    for place in &mut flows {
        if !input.is_empty() {
            *place = Some(Flow::decode(&mut input).ok()?);
        }
    }
    input.is_empty().then_some(flows)
}

impl Firewall {
    /// Ends the flows that a frame names, which tells nothing else. Each removal has a generation of its own: no copy of the flow on
    /// another host brings it back.
    #[cold]
    #[inline(never)]
    pub(super) fn end(ask: Ask<'_, FirewallState>) -> Result<Verdict, Late> {
        let Some(flows) = named(ask.packet().bytes()) else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let reads = flows.map(|flow| flow.map(|flow| ask.flows.get(&flow)));
        let mut known = [None; ENDED_AT_ONCE_MAX];
        for (place, read) in known.iter_mut().zip(reads) {
            *place = read.transpose()?.flatten();
        }
        let mut act = ask.act()?;
        for at in known.iter().flatten() {
            act.flows.remove(at);
        }
        Ok(Verdict::Consumed)
    }

    /// A part of the answer to [`FLOWS_QUESTION`]. Where to go on.
    pub(super) fn report_flows(
        &self,
        state: &FirewallState,
        range: (u32, u32),
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        let mut out = Writer::new(out, &[]);
        state.flows.for_each_from(range, |row, track, _| {
            let known = KnownFlow {
                flow: row.0,
                is_first_opener: track.opener() == asterism_tracking::Direction::Forth,
                is_denied: self.denies(&row.0, track),
            };
            known.encode(&mut out);
        })
    }

    /// Whether the rules would deny a flow that is known, by who opened it and where.
    fn denies(&self, flow: &Flow, track: &Track) -> bool {
        let opener = track.opener();
        let (source, source_port) = flow.endpoint(opener);
        let (destination, destination_port) = destination_of(flow, opener);
        let (action, _) = self.config().rules.decide(&Query {
            link: track.opened_on(),
            protocol: flow.protocol().0,
            source,
            destination,
            source_port,
            destination_port,
        });
        action != Action::Allow
    }
}
