//! Accounts that the packets of several flows use, so that transactions of several hosts are often in each other's way.
//!
//! Each packet counts its account up, takes the count with it, and says what it counted by a packet of its own now and then. An account
//! ends at a count and begins again; there is one account more than there is room for.

use asterism_function::{
    Ask, Builder, Counter, Endpoint, Flow4, Late, Map, NetworkFunction, Pool, PortNumber, Protocol,
    Reason, Value, Verdict, Wire, build, state,
};

use super::plan::{Homes, StorePlan};
use super::world::World;
use crate::ports::Ports;
use crate::scenario::Draws;

/// Accounts, each of which the packets of several flows use, and which are one too many.
const ACCOUNTS: u32 = 4;
/// Flows.
const FLOWS: u16 = 12;
/// An account ends when it has counted so many.
const ENDS_AT: u32 = 9;
/// One packet of so many needs nothing of the store.
const PASSES_OF: u32 = 11;
/// One packet of so many only looks at its flow, and one at its account and at the one after it.
const LOOKS_OF: u32 = 7;
const COMPARES_OF: u32 = 13;
/// One packet of so many takes an item of a pool for good.
const TAKES_OF: u32 = 3;
/// Where the payload begins, which is the packet's number.
const PAYLOAD: usize = 42;
/// What an emitted packet's number has besides.
const RECEIPT: u32 = 1 << 31;
/// Seconds without use after which an entry ends: longer than a run.
const IDLE_S: u32 = 3_600;

/// How often.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, Value)]
pub(super) struct Count(u32);

/// The function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tills {
    /// Accounts end. Not where they are a host's own: that there was no room is a read of what the packet does not write, which may be
    /// otherwise by the time at which the store commits.
    ends: bool,
}

/// What the hosts have in common, but for the last two.
#[state]
pub(super) struct Counted {
    accounts: Map<u32, Count>,
    flows: Map<u32, Count>,
    seen: Map<u32, ()>,
    items: Pool<Ports>,
    packets: Counter,
}

impl NetworkFunction for Tills {
    type State = Counted;

    fn state(&self, builder: &Builder) -> Counted {
        Counted {
            accounts: builder.table("accounts", ACCOUNTS, &[IDLE_S]),
            flows: builder.table("flows", 1 << 8, &[IDLE_S]),
            seen: builder.table("seen", 1 << 10, &[IDLE_S]),
            items: builder.pool("items", Ports { items: 1 << 10 }),
            packets: builder.counter("packets"),
        }
    }

    fn packet(&self, ask: Ask<'_, Counted>) -> Result<Verdict, Late> {
        let number = number_of(ask.packet().bytes());
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        if number.is_multiple_of(PASSES_OF) {
            ask.act()?.packets.add(1);
            return Ok(Verdict::Forward(PortNumber(0)));
        }
        let flow = u32::from(flow.source_port);
        let account = flow % (ACCOUNTS + 1);
        if number.is_multiple_of(LOOKS_OF) {
            let known = ask.flows.get(&flow)?;
            return shown(ask, [known.map(|known| known.value), None]);
        }
        if number.is_multiple_of(COMPARES_OF) {
            let next = (account + 1) % (ACCOUNTS + 1);
            let both = ask.all((ask.accounts.get(&account), ask.accounts.get(&next)))?;
            let counts = [both.0, both.1].map(|known| known.map(|known| known.value));
            return shown(ask, counts);
        }
        let known = ask.all((
            ask.seen.entry(number),
            ask.accounts.get(&account),
            ask.flows.entry(flow),
        ));
        let (seen, at, known) = known?;
        let place = ask.accounts.entry_at(at, account)?;
        let taken = match number.is_multiple_of(TAKES_OF) {
            true => ask.items.grant(number % 2, number)?,
            false => None,
        };
        let count = at.map_or(0, |at| at.value.0) + 1;
        let of_flow = known.value().map_or(0, |count| count.0) + 1;
        let mut act = ask.act()?;
        act.packets.add(1);
        act.seen.put(seen, ());
        act.flows.put(known, Count(of_flow));
        if let Some(grant) = taken {
            act.items.take(grant);
        }
        match at {
            Some(at) if self.ends && count == ENDS_AT => act.accounts.remove(&at),
            _ if act.accounts.put(place, Count(count)) => {}
            _ => return Ok(Verdict::Drop(Reason::TableFull)),
        }
        act.packet.set_source_port(count as u16);
        act.packet.set_destination_port(of_flow as u16);
        if count.is_multiple_of(3) {
            act.emit(PortNumber(1), |packet, room| {
                let bytes = packet.bytes();
                room[..bytes.len()].copy_from_slice(bytes);
                room[PAYLOAD..PAYLOAD + 4].copy_from_slice(&(number | RECEIPT).to_be_bytes());
                Some(bytes.len())
            });
        }
        Ok(match count % 4 {
            0 => Verdict::Consumed,
            _ => Verdict::Forward(PortNumber(0)),
        })
    }
}

/// The packet leaves with these counts, and changes nothing.
fn shown(ask: Ask<'_, Counted>, counts: [Option<Count>; 2]) -> Result<Verdict, Late> {
    let [first, second] = counts.map(|count| count.map_or(0, |count| count.0 as u16));
    let mut act = ask.act()?;
    act.packets.add(1);
    act.packet.set_source_port(first);
    act.packet.set_destination_port(second);
    Ok(Verdict::Forward(PortNumber(0)))
}

fn number_of(bytes: &[u8]) -> u32 {
    let number = bytes
        .get(PAYLOAD..)
        .and_then(|payload| payload.first_chunk());
    number.map_or(0, |&number| u32::from_be_bytes(number))
}

/// Those who send.
pub(super) struct Accounts {
    function: Tills,
    draws: Draws,
    sent: u32,
}

impl Accounts {
    pub(super) fn new(plan: &StorePlan) -> Self {
        Self {
            function: Tills {
                ends: plan.homes != Homes::Odd,
            },
            draws: Draws::new(plan.seed, 61),
            sent: 0,
        }
    }
}

impl World for Accounts {
    type Function = Tills;

    fn function(&self) -> Tills {
        self.function
    }

    fn packet(&mut self) -> (PortNumber, Vec<u8>) {
        self.sent += 1;
        let port = 1_000 + self.draws.within(0, u64::from(FLOWS) - 1) as u16;
        let source = Endpoint::new([10, 0, 0, 1].into(), port, Protocol::UDP);
        let destination = Endpoint::new([192, 0, 2, 1].into(), 53, Protocol::UDP);
        let flow = Flow4 {
            source: source.address,
            destination: destination.address,
            source_port: source.port,
            destination_port: destination.port,
            protocol: source.protocol.0,
        };
        let mut payload = [0; 24];
        payload[..4].copy_from_slice(&self.sent.to_be_bytes());
        let mut bytes = vec![0; 128];
        let length = build::flow4(&flow, &payload, &mut bytes);
        bytes.truncate(length.expect("a short packet fits"));
        (PortNumber(0), bytes)
    }
}
