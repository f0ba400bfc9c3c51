//! A ledger that the packets of several flows write, so that commits of several hosts are often in each other's way: what hosts run whose
//! objects are in a store that fails.
//!
//! A packet counts an account and its flow up, hands a token on, and has its flow stay as a guest, of which a sum in the store counts those
//! of each room. It takes with it what it read. Others only look, at one key or at two. There is one account more than there is room for.

use asterism_function::{
    Ask, BiMap, Builder, Endpoint, Flow4, Late, Map, NetworkFunction, PortNumber, Protocol, Reason,
    Value, Vector, Verdict, Wire, build, state,
};
use asterism_state::{ObjectSettings, Single};

use super::plan::RemotePlan;
use crate::scenario::Draws;

/// Accounts, which are one too many, and tokens.
const ACCOUNTS: u32 = 4;
/// The port of the first flow.
const FIRST_PORT: u16 = 1_000;
/// Flows that packets are of at a time: all the while one ends and another one begins, each after so many packets.
const FLOWS: u64 = 10;
const PACKETS_PER_FLOW: u32 = 6;
/// Rooms of guests.
pub(super) const ROOMS: u32 = 3;
/// Seconds after which a guest ends that no packet is of.
pub(super) const IDLE_S: u32 = 4;
/// Seconds without use after which others end: longer than a run.
const LONG_S: u32 = 3_600;
/// Where the payload begins: a packet's number, and what it is to do.
const PAYLOAD: usize = 42;
/// What an emitted packet's number has besides.
const RECEIPT: u32 = 1 << 31;

/// The number of the object of guests, and of the sums that count them.
pub(super) const GUESTS: u8 = 3;
pub(super) const SUMS: u8 = 4;
/// The objects in the store, a bit for each; the sums follow the guests.
pub(super) const OBJECTS: u64 = 0b1111;

/// What a packet does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    Writes,
    /// It looks at its flow.
    Looks,
    /// It looks at two accounts.
    Compares,
    /// Its guest goes.
    Leaves,
}

impl Does {
    const ALL: [Self; 4] = [Self::Writes, Self::Looks, Self::Compares, Self::Leaves];
}

/// How often.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, Value)]
pub(super) struct Count(u32);

/// The function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ledger {
    /// There is room for all accounts, also while several packets are to add one. Where a failover takes some away it must be so: that there was no room is a read of what the packet
    /// does not write, which may be otherwise by the time at which the store commits.
    has_room: bool,
}

impl Ledger {
    pub(super) fn new(plan: &RemotePlan) -> Self {
        Self {
            has_room: !plan.failovers.is_empty(),
        }
    }
}

/// What the hosts have in the store.
#[state]
pub(super) struct Books {
    accounts: Map<u32, Count>,
    flows: Map<u32, Count>,
    /// Which packet has which token, by its number; of some packets two have the same, and one of them is found by it.
    tokens: BiMap<u32, u32>,
    guests: Map<u32, Count>,
    rooms: Vector,
}

impl NetworkFunction for Ledger {
    type State = Books;

    fn state(&self, builder: &Builder) -> Books {
        builder.writing(5, &[]);
        let room = if self.has_room { 1 << 8 } else { ACCOUNTS };
        let accounts = builder.table("accounts", room, &[LONG_S]);
        let flows = builder.table("flows", 1 << 8, &[LONG_S]);
        let tokens = builder.table("tokens", 1 << 10, &[LONG_S]);
        let mut guests = builder.table("guests", 1 << 8, &[IDLE_S]);
        let mut rooms = builder.own_vector("rooms", ROOMS);
        guests.counted_in(&mut rooms, |guest: &Single<u32>| guest.0 % ROOMS);
        Books {
            accounts,
            flows,
            tokens,
            guests,
            rooms,
        }
    }

    fn packet(&self, ask: Ask<'_, Books>) -> Result<Verdict, Late> {
        let (number, does) = read(ask.packet().bytes());
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let flow = u32::from(flow.source_port.saturating_sub(FIRST_PORT));
        let account = flow % (ACCOUNTS + 1);
        match does {
            Does::Looks => {
                let known = ask.flows.get(&flow)?;
                return shown(ask, [known.map(|known| known.value), None]);
            }
            Does::Compares => {
                let next = (account + 1) % (ACCOUNTS + 1);
                let both = ask.all((ask.accounts.get(&account), ask.accounts.get(&next)))?;
                let counts = [both.0, both.1].map(|known| known.map(|known| known.value));
                return shown(ask, counts);
            }
            Does::Leaves => {
                let guest = ask.guests.get(&flow)?;
                let mut act = ask.act()?;
                if let Some(guest) = &guest {
                    act.guests.remove(guest);
                }
                act.packet.set_source_port(u16::from(guest.is_some()));
                return Ok(Verdict::Forward(PortNumber(0)));
            }
            Does::Writes => {}
        }
        let token = number % (ACCOUNTS + 1);
        let counted = ask.all((
            ask.accounts.entry(account),
            ask.flows.entry(flow),
            ask.guests.entry(flow),
        ));
        let tokens = ask.all((ask.tokens.by_right(&token), ask.tokens.vacancy()));
        let ((known, of_flow, guest), (holder, room)) = ask.all((counted, tokens))?;
        let count = known.value().map_or(0, |count| count.0) + 1;
        let in_flow = of_flow.value().map_or(0, |count| count.0) + 1;
        let mut act = ask.act()?;
        act.flows.put(of_flow, Count(in_flow));
        act.guests.put(guest, Count(number));
        // Else both have it.
        if let Some(holder) = holder.filter(|_| number % 4 != 0) {
            act.tokens.remove(&holder);
        }
        if let Some(room) = room {
            act.tokens.insert(room, (number, token), ());
        }
        if !act.accounts.put(known, Count(count)) {
            return Ok(Verdict::Drop(Reason::TableFull));
        }
        act.packet.set_source_port(count as u16);
        act.packet.set_destination_port(in_flow as u16);
        if count.is_multiple_of(3) {
            act.emit(PortNumber(1), |packet, room| {
                let bytes = packet.bytes();
                room[..bytes.len()].copy_from_slice(bytes);
                room[PAYLOAD..PAYLOAD + 4].copy_from_slice(&(number | RECEIPT).to_be_bytes());
                Some(bytes.len())
            });
        }
        Ok(Verdict::Forward(PortNumber(0)))
    }
}

/// The packet leaves with these counts, and changes nothing.
fn shown(ask: Ask<'_, Books>, counts: [Option<Count>; 2]) -> Result<Verdict, Late> {
    let [first, second] = counts.map(|count| count.map_or(0, |count| count.0 as u16));
    let mut act = ask.act()?;
    act.packet.set_source_port(first);
    act.packet.set_destination_port(second);
    Ok(Verdict::Forward(PortNumber(0)))
}

/// Where the objects are.
pub(super) fn settings(name: &str) -> ObjectSettings {
    match name {
        "rooms" => ObjectSettings::LOCAL,
        _ => ObjectSettings::REMOTE,
    }
}

fn read(bytes: &[u8]) -> (u32, Does) {
    let payload = bytes.get(PAYLOAD..).unwrap_or_default();
    let number = payload.first_chunk();
    let does = payload.get(4).copied().unwrap_or_default();
    (
        number.map_or(0, |&number| u32::from_be_bytes(number)),
        Does::ALL[usize::from(does) % Does::ALL.len()],
    )
}

/// The number of a packet.
pub(super) fn number_of(bytes: &[u8]) -> u32 {
    read(bytes).0
}

/// A packet of a flow.
pub(super) fn packet(flow: u32, number: u32, does: Does) -> Vec<u8> {
    let port = FIRST_PORT + flow as u16;
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
    payload[..4].copy_from_slice(&number.to_be_bytes());
    payload[4] = does as u8;
    let mut bytes = vec![0; 128];
    let length = build::flow4(&flow, &payload, &mut bytes);
    bytes.truncate(length.expect("a short packet fits"));
    bytes
}

/// The next packet that somebody sends; most only read, or as many write.
pub(super) fn next(number: u32, reads_mostly: bool, draws: &mut Draws) -> Vec<u8> {
    let flow = number / PACKETS_PER_FLOW + draws.within(0, FLOWS - 1) as u32;
    let does = match (draws.within(0, 19), reads_mostly) {
        (0..9, false) | (0..2, true) => Does::Writes,
        (9..15, false) | (2..11, true) => Does::Looks,
        (15..18, false) | (11..19, true) => Does::Compares,
        _ => Does::Leaves,
    };
    packet(flow, number, does)
}

/// The guest of a packet that has it stay, or go.
pub(super) fn guest_of(bytes: &[u8]) -> Option<(u32, bool)> {
    let port: [u8; 2] = *bytes.get(34..)?.first_chunk()?;
    let guest = u32::from(u16::from_be_bytes(port).saturating_sub(FIRST_PORT));
    match read(bytes).1 {
        Does::Writes => Some((guest, true)),
        Does::Leaves => Some((guest, false)),
        Does::Looks | Does::Compares => None,
    }
}
