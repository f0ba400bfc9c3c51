//! A function that writes an entry for every packet, for measures that want as many writes as packets.

use asterism_function::{
    Ask, Builder, Late, Map, NetworkFunction, PortNumber, Reason, Single, Verdict, state,
};

use super::replication_inserts::{InsertKey, InsertValue};

/// Counts a key's packets: every one is a write.
pub(super) struct CountPackets {
    /// Entries of its table.
    pub(super) capacity: u32,
}

#[state]
pub(super) struct PacketCounts {
    /// By addresses, ports and protocol.
    pub(super) entries: Map<InsertKey, InsertValue>,
}

impl NetworkFunction for CountPackets {
    type State = PacketCounts;

    fn state(&self, builder: &Builder) -> PacketCounts {
        PacketCounts {
            entries: builder.table("entries", self.capacity, &[]),
        }
    }

    fn packet(&self, ask: Ask<'_, PacketCounts>) -> Result<Verdict, Late> {
        let Some(plain) = ask.packet().plain4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let key = InsertKey::of(&plain);
        if let Some(at) = ask.entries.get(&key)? {
            let value = InsertValue(at.value.0.wrapping_add(1));
            ask.act()?.entries.update(&at, value);
            return Ok(Verdict::Forward(PortNumber(1)));
        }
        let Some(room) = ask.entries.vacancy()? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        let mut act = ask.act()?;
        act.entries.insert(room, Single(key), InsertValue(1));
        Ok(Verdict::Forward(PortNumber(1)))
    }
}
