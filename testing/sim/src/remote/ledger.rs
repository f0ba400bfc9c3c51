//! A ledger that the packets of several flows write, so that commits of several hosts are often in each other's way: what hosts run whose
//! objects are in a store that fails.
//!
//! A packet counts an account and its flow up, hands a token on, and has its flow stay as a guest, of which a sum in the store counts those
//! of each room. It adds to its account's sum of packets, and spends of its client's budget as long as its host finds something there. It takes with it what it read. Others only look, at one key or at two. There is one account more than there is room for.
//!
//! All that packets of one client read and write is that client's, so that a store of several shards can have it. A store without shards has
//! one client alone.

use core::net::{IpAddr, Ipv4Addr};

use asterism_function::{
    Ask, BiMap, Builder, Counters, Endpoint, Flow4, Key, Late, Map, NetworkFunction, PortNumber,
    Protocol, Reason, Spending, TokenBucket, TokenRate, Value, Vector, Verdict, Wire, build, state,
};
use asterism_state::{ObjectSettings, Single};

use super::plan::RemotePlan;
use crate::scenario::Draws;

/// Accounts, of which there is one more, and tokens.
const ACCOUNTS: u32 = 4;
/// Accounts of a client, where there are several clients, and for how many accounts of a shard there is room: for one too few.
const ACCOUNTS_OF_CLIENT: u32 = 2;
const ROOM_OF_SHARD: u32 = ACCOUNTS_OF_CLIENT * CLIENTS_OF_SHARD as u32 - 1;
/// Room for all accounts.
const ROOM: u32 = 1 << 8;
/// Clients whose conversations each shard has.
pub(super) const CLIENTS_OF_SHARD: usize = 2;
/// The one to which all clients talk.
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Where the last byte of a client's address is in a packet, and that of the first client.
const CLIENT: usize = 29;
const FIRST_CLIENT: u8 = 1;
/// The flow of packets that stray.
const STRAYS_FLOW: u32 = 2_000;
/// The port of the first flow.
const FIRST_PORT: u16 = 1_000;
/// Flows that packets are of at a time: all the while one ends and another one begins, each after so many packets.
const FLOWS: u64 = 10;
const PACKETS_PER_FLOW: u32 = 6;
/// The same where flows are few.
const FLOWS_FEW: u64 = 4;
const PACKETS_PER_FLOW_FEW: u32 = 16;
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
/// Those of the sums of packets and of the budgets.
pub(super) const WRITERS: u8 = 5;
pub(super) const BUDGETS: u8 = 6;
/// The objects in the store, a bit for each; the sums of rooms follow the guests.
pub(super) fn objects(plan: &RemotePlan) -> u64 {
    match plan.adds {
        true => 0b110_1111,
        false => 0b000_1111,
    }
}

/// What each client may spend at a host: less than its packets ask for.
pub(super) const BUDGET: TokenRate = TokenRate {
    tokens_per_second: 100,
    burst_tokens: 8,
};

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
    /// It reads an entry of another shard's client.
    Strays,
    /// It reads nothing, and writes an entry of such a client.
    StraysBlindly,
}

impl Does {
    const ALL: [Self; 6] = [
        Self::Writes,
        Self::Looks,
        Self::Compares,
        Self::Leaves,
        Self::Strays,
        Self::StraysBlindly,
    ];
}

/// What an entry is found by: a number, and in the upper byte the client whose packets alone read and write it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire)]
pub(super) struct Name(pub(super) u32);

impl Name {
    pub(super) fn new(client: u8, number: u32) -> Self {
        Self(u32::from(client) << 24 | number & 0xFF_FFFF)
    }

    /// Of a row as it is written.
    pub(super) fn of_row(row: &[u8]) -> Self {
        Self(row.first_chunk().map_or(0, |&row| u32::from_le_bytes(row)))
    }

    fn client(self) -> u8 {
        (self.0 >> 24) as u8
    }

    pub(super) fn number(self) -> u32 {
        self.0 & 0xFF_FFFF
    }
}

/// As a number is: the entries of the first client are found as if numbers were their keys.
impl Key for Name {
    const IS_OF_CONVERSATION: bool = true;
    fn hash(&self, seed: u64) -> u64 {
        self.0.hash(seed)
    }
    fn between(&self) -> Option<(IpAddr, IpAddr)> {
        Some(ends(self.client()))
    }
}

/// The two addresses of a client's packets.
pub(super) fn ends(client: u8) -> (IpAddr, IpAddr) {
    let client = Ipv4Addr::new(10, 0, 0, FIRST_CLIENT + client);
    (client.into(), SERVER.into())
}

/// How often.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, Value)]
pub(super) struct Count(u32);

/// The function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ledger {
    /// For how many accounts there is room: for all, also while several packets are to add one, where a failover takes some away. It must be so: that there was no room is a read
    /// of what the packet does not write, which may be otherwise by the time at which the store commits.
    room: u32,
    clients: u32,
}

impl Ledger {
    pub(super) fn new(plan: &RemotePlan) -> Self {
        let shards = plan.shards.len() as u32;
        let fails = plan.shards.iter().any(|shard| !shard.failovers.is_empty());
        Self {
            room: match (fails, shards) {
                (true, _) => ROOM,
                (false, 1) => ACCOUNTS,
                (false, _) => ROOM_OF_SHARD * shards,
            },
            clients: plan.clients.len() as u32,
        }
    }

    /// The same in one of several shards, each of which has room for an equal part.
    pub(super) fn in_shard_of(self, shards: usize) -> Self {
        Self {
            room: self.room.div_ceil(shards as u32),
            ..self
        }
    }

    /// The account of a flow, and the one behind it.
    fn accounts(self, flow: u32) -> [u32; 2] {
        let count = match self.clients {
            1 => ACCOUNTS + 1,
            _ => ACCOUNTS_OF_CLIENT,
        };
        let account = flow / self.clients % count;
        [account, (account + 1) % count]
    }
}

/// What the hosts have in the store.
#[state]
pub(super) struct Books {
    accounts: Map<Name, Count>,
    flows: Map<Name, Count>,
    /// Which packet has which token, by its number; of some packets two have the same, and one of them is found by it.
    tokens: BiMap<Name, Name>,
    guests: Map<Name, Count>,
    rooms: Vector,
    writers: Counters<Name>,
    budgets: TokenBucket<Name>,
}

impl NetworkFunction for Ledger {
    type State = Books;

    fn state(&self, builder: &Builder) -> Books {
        builder.writing(5, &[]);
        let accounts = builder.table("accounts", self.room, &[LONG_S]);
        let flows = builder.table("flows", 1 << 8, &[LONG_S]);
        let tokens = builder.table("tokens", 1 << 10, &[LONG_S]);
        let mut guests = builder.table("guests", 1 << 8, &[IDLE_S]);
        let mut rooms = builder.own_vector("rooms", ROOMS);
        guests.counted_in(&mut rooms, |guest: &Single<Name>| guest.0.number() % ROOMS);
        Books {
            accounts,
            flows,
            tokens,
            guests,
            rooms,
            writers: builder.counters("writers", 1 << 6),
            budgets: builder.token_bucket("budgets", 1 << 4, BUDGET, Spending::Approximate),
        }
    }

    fn packet(&self, ask: Ask<'_, Books>) -> Result<Verdict, Late> {
        let (number, does) = read(ask.packet().bytes());
        let other = ask.packet().bytes().get(PAYLOAD + 5).copied();
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let client = flow.source.octets()[3].saturating_sub(FIRST_CLIENT);
        let flow = u32::from(flow.source_port.saturating_sub(FIRST_PORT));
        let of_client = |number| Name::new(client, number);
        let [account, next] = self.accounts(flow).map(of_client);
        let flow = of_client(flow);
        match does {
            Does::Looks => {
                let known = ask.flows.get(&flow)?;
                return shown(ask, [known.map(|known| known.value), None]);
            }
            Does::Compares => {
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
            Does::Strays => {
                let known = ask
                    .flows
                    .entry(Name::new(other.unwrap_or_default(), number))?;
                let mut act = ask.act()?;
                act.flows.put(known, Count(number));
                return Ok(Verdict::Forward(PortNumber(0)));
            }
            Does::StraysBlindly => {
                let room = ask.tokens.vacancy()?;
                let mut act = ask.act()?;
                let astray = Name::new(other.unwrap_or_default(), number);
                if let Some(room) = room {
                    act.tokens.insert(room, (astray, astray), ());
                }
                return Ok(Verdict::Forward(PortNumber(0)));
            }
            Does::Writes => {}
        }
        let token = of_client(number % (ACCOUNTS + 1));
        let counted = ask.all((
            ask.accounts.entry(account),
            ask.flows.entry(flow),
            ask.guests.entry(flow),
        ));
        let tokens = ask.all((ask.tokens.by_right(&token), ask.tokens.vacancy()));
        let budget = ask.budgets.tokens(&of_client(0), 1);
        let sums = ask.all((ask.writers.find(&account), budget));
        let ((known, of_flow, guest), (holder, room), (writers, budget)) =
            ask.all((counted, tokens, sums))?;
        let count = known.value().map_or(0, |count| count.0) + 1;
        let in_flow = of_flow.value().map_or(0, |count| count.0) + 1;
        let mut act = ask.act()?;
        act.flows.put(of_flow, Count(in_flow));
        if let Some(writers) = writers {
            act.writers.add(&writers, 1);
        }
        if let Some(budget) = budget {
            act.budgets.spend(budget);
        }
        act.guests.put(guest, Count(number));
        // Else both have it.
        if let Some(holder) = holder.filter(|_| number % 4 != 0) {
            act.tokens.remove(&holder);
        }
        if let Some(room) = room {
            act.tokens.insert(room, (of_client(number), token), ());
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
pub(super) fn settings(plan: &RemotePlan) -> impl Fn(&str) -> ObjectSettings + use<> {
    let adds = plan.adds;
    move |name| match name {
        "rooms" => ObjectSettings::LOCAL,
        "writers" | "budgets" if !adds => ObjectSettings::LOCAL,
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

/// A packet of the flow of a client that has this number.
pub(super) fn packet(flow: Name, number: u32, does: Does) -> Vec<u8> {
    packet_with(flow, number, (does, 0))
}

fn packet_with(flow: Name, number: u32, (does, other): (Does, u8)) -> Vec<u8> {
    let port = FIRST_PORT + flow.number() as u16;
    let client = Ipv4Addr::new(10, 0, 0, FIRST_CLIENT + flow.client());
    let source = Endpoint::new(client, port, Protocol::UDP);
    let destination = Endpoint::new(SERVER, 53, Protocol::UDP);
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
    payload[5] = other;
    let mut bytes = vec![0; 128];
    let length = build::flow4(&flow, &payload, &mut bytes);
    bytes.truncate(length.expect("a short packet fits"));
    bytes
}

/// The next packet that one of these clients sends; most only read, or as many write.
pub(super) fn next(number: u32, plan: &RemotePlan, draws: &mut Draws) -> Vec<u8> {
    let (flows, packets) = match plan.is_steered {
        true => (FLOWS_FEW, PACKETS_PER_FLOW_FEW),
        false => (FLOWS, PACKETS_PER_FLOW),
    };
    let flow = number / packets + draws.within(0, flows - 1) as u32;
    let draw = draws.within(0, 19);
    let does = match plan.is_steered {
        // Where flows are few there is something of each to read, again and again.
        true if number < FLOWS_FEW as u32 || number % packets < 2 => Does::Writes,
        true => match draw {
            0..2 => Does::Writes,
            2 => Does::Leaves,
            _ => Does::Looks,
        },
        false => match (draw, plan.reads_mostly) {
            (0..9, false) | (0..2, true) => Does::Writes,
            (9..15, false) | (2..11, true) => Does::Looks,
            (15..18, false) | (11..19, true) => Does::Compares,
            _ => Does::Leaves,
        },
    };
    let client = plan.clients[flow as usize % plan.clients.len()];
    packet(Name::new(client, flow), number, does)
}

/// A packet of a client that reads or writes what is another client's.
pub(super) fn stray(number: u32, [client, other]: [u8; 2], is_blind: bool) -> Vec<u8> {
    let does = match is_blind {
        true => Does::StraysBlindly,
        false => Does::Strays,
    };
    packet_with(
        Name::new(client, STRAYS_FLOW + number),
        number,
        (does, other),
    )
}

/// The client of a packet.
pub(super) fn client_of(bytes: &[u8]) -> u8 {
    let last = bytes.get(CLIENT).copied();
    last.unwrap_or_default().saturating_sub(FIRST_CLIENT)
}

/// Whether a packet only looks.
pub(super) fn only_looks(bytes: &[u8]) -> bool {
    matches!(read(bytes).1, Does::Looks | Does::Compares)
}

/// The guest of a packet that has it stay, or go.
pub(super) fn guest_of(bytes: &[u8]) -> Option<(Name, bool)> {
    let port: [u8; 2] = *bytes.get(34..)?.first_chunk()?;
    let guest = u32::from(u16::from_be_bytes(port).saturating_sub(FIRST_PORT));
    let guest = Name::new(client_of(bytes), guest);
    match read(bytes).1 {
        Does::Writes => Some((guest, true)),
        Does::Leaves => Some((guest, false)),
        _ => None,
    }
}
