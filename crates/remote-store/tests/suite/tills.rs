//! A function whose packets are often in each other's way, and what must hold of all that leaves.

use std::collections::{BTreeMap, BTreeSet};

use asterism_function::{
    Ask, BiMap, Builder, Counter, Flow4, Late, Map, NetworkFunction, PortNumber, Reason, Value,
    Verdict, Wire, build, state,
};
use asterism_state::ObjectSettings;

/// Where the payload begins, which is a packet's number.
const PAYLOAD: usize = 42;
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, Value)]
pub(crate) struct Number(u32);

/// Counts up an account by each packet, which takes the count with it. There is one account more than so many, for which there is room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tills(pub(crate) u32);

#[state]
pub(crate) struct Accounts {
    /// In the store, and the next two.
    accounts: Map<u32, Number>,
    seen: Map<u32, ()>,
    /// Which packet has which token: the last one that came, by its number, or, of some, the greatest.
    tokens: BiMap<u32, u32>,
    /// At the instance.
    flows: Map<u32, Number>,
    /// In the store.
    packets: Counter,
}

/// Objects in the store, a bit for each.
pub(crate) const IN_STORE: u64 = 0b1_0111;

pub(crate) fn settings(name: &str) -> ObjectSettings {
    match name {
        "accounts" | "seen" | "tokens" | "packets" => ObjectSettings {
            home: asterism_state::Home::Remote,
            ..ObjectSettings::LOCAL
        },
        _ => ObjectSettings::LOCAL,
    }
}

impl NetworkFunction for Tills {
    type State = Accounts;
    fn state(&self, builder: &Builder) -> Accounts {
        builder.writing(5, &[]);
        Accounts {
            accounts: builder.table("accounts", self.0, &[0]),
            seen: builder.table("seen", 1 << 16, &[600]),
            tokens: builder.table("tokens", 1 << 16, &[600]),
            flows: builder.table("flows", 256, &[0]),
            packets: builder.counter("packets"),
        }
    }
    fn packet(&self, ask: Ask<'_, Accounts>) -> Result<Verdict, Late> {
        let number = number_of(ask.packet().bytes());
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let flow = u32::from(flow.source_port);
        let account = flow % (self.0 + 1);
        let token = number % (self.0 + 1);
        let counted = ask.all((
            ask.seen.entry(number),
            ask.accounts.entry(account),
            ask.flows.entry(flow),
        ));
        let tokens = ask.all((ask.tokens.by_right(&token), ask.tokens.vacancy()));
        let ((seen, known, of_flow), (holder, room)) = ask.all((counted, tokens))?;
        let count = known.value().map_or(0, |count| count.0) + 1;
        let in_flow = of_flow.value().map_or(0, |count| count.0) + 1;
        let mut act = ask.act()?;
        act.packets.add(1);
        act.seen.put(seen, ());
        act.flows.put(of_flow, Number(in_flow));
        // Else both have it, and one of them is found by it.
        if let Some(holder) = holder.filter(|_| number.is_multiple_of(2)) {
            act.tokens.remove(&holder);
        }
        if let Some(room) = room {
            act.tokens.insert(room, (number, token), ());
        }
        if !act.accounts.put(known, Number(count)) {
            return Ok(Verdict::Drop(Reason::TableFull));
        }
        act.packet.set_source_port(count as u16);
        act.packet.set_destination_port(account as u16);
        Ok(Verdict::Forward(PortNumber(0)))
    }
}

pub(crate) fn number_of(bytes: &[u8]) -> u32 {
    let number = bytes[PAYLOAD..].first_chunk();
    number.map_or(0, |&number| u32::from_be_bytes(number))
}

pub(crate) fn packet(flow: u16, number: u32) -> Vec<u8> {
    let flow = Flow4 {
        source: [10, 0, 0, 1].into(),
        destination: [192, 0, 2, 1].into(),
        source_port: 1_000 + flow,
        destination_port: 53,
        protocol: 17,
    };
    let mut payload = [0; 24];
    payload[..4].copy_from_slice(&number.to_be_bytes());
    let mut bytes = vec![0; 128];
    let length = build::flow4(&flow, &payload, &mut bytes).expect("room for a packet");
    bytes.truncate(length);
    bytes
}

/// What left, of `sent` packets: each number once, each account counted from 1 on without a gap, but for packets that were given up, and one
/// account without room. How many packets were dropped for want of room.
pub(crate) fn judge(tills: Tills, left: &[Vec<u8>], sent: u32, given_up: u64) -> u32 {
    let mut numbers = BTreeSet::new();
    let mut counts: BTreeMap<u16, Vec<u16>> = BTreeMap::new();
    for bytes in left {
        let number = number_of(bytes);
        assert!(numbers.insert(number), "{number} left twice");
        assert!(number < sent);
        let port = |from: usize| u16::from_be_bytes([bytes[from], bytes[from + 1]]);
        counts.entry(port(36)).or_default().push(port(34));
    }
    assert!(counts.len() <= tills.0 as usize, "{:?}", counts.keys());
    let mut lost = 0;
    for (account, mut counts) in counts {
        counts.sort_unstable();
        let (count, last) = (counts.len(), counts.last().copied());
        counts.dedup();
        assert_eq!(counts.len(), count, "account {account} counted twice");
        lost += u64::from(last.unwrap_or_default()) - count as u64;
    }
    assert!(
        lost <= given_up,
        "{lost} counts without a packet, and {given_up} given up"
    );
    sent - left.len() as u32 - given_up as u32
}
