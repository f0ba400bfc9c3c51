//! Manual blocks: an operator blocks a source or lifts its block. The control side sends a frame on the port
//! [`CONTROL`](asterism_function::CONTROL), and the function changes its table.

use asterism_function::objects::TableAct;
use asterism_function::{
    At, BadBytes, Entry, Host, Key, Late, Map, Reader, Reason, Single, Tick, Value, Verdict, Wire,
    Writer,
};

use crate::blocked::{HELD_S, SECONDS_MAX, held_class};

/// What a [`BlockedRecord`](crate::blocked::BlockedRecord) says of who was blocked manually.
pub const BY_HAND: &str = "manually";

/// The Ethernet type of local experiments (IEEE 802).
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
const PAYLOAD_AT: usize = 14;

/// What an operator has a function do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// To drop what a source sends, for 1 to [`SECONDS_MAX`] seconds from when the function has the order.
    Block {
        /// The source.
        source: Host,
        /// For how long, in seconds.
        seconds: Tick,
    },
    /// To drop nothing any more because it is from this source.
    Unblock(Host),
    /// The same of connections between two ends, no matter who began them: of TCP and of UDP.
    UnblockConnection([(Host, u16); 2]),
}

impl Order {
    /// The frame that tells a function of it.
    #[must_use]
    pub fn frame(&self) -> Vec<u8> {
        let mut frame = vec![0; PAYLOAD_AT];
        frame[PAYLOAD_AT - 2..].copy_from_slice(&ETHERTYPE);
        self.encode(&mut Writer::new(&mut frame, &[]));
        frame
    }

    /// What a frame tells; `None` if it is no such frame.
    pub fn read(frame: &[u8]) -> Option<Self> {
        if frame.get(PAYLOAD_AT - 2..PAYLOAD_AT)? != ETHERTYPE {
            return None;
        }
        let mut input = Reader::new(frame.get(PAYLOAD_AT..)?, &[]);
        let order = Self::decode(&mut input).ok()?;
        input.is_empty().then_some(order)
    }
}

/// What a frame tells a function that blocks sources alone: which, and for how many seconds, if not to let it through again.
pub fn of_source(frame: &[u8]) -> Option<(Host, Option<Tick>)> {
    match Order::read(frame)? {
        Order::Block { source, seconds } => Some((source, Some(seconds))),
        Order::Unblock(source) => Some((source, None)),
        Order::UnblockConnection(_) => None,
    }
}

const BLOCK: u8 = 1;
const UNBLOCK: u8 = 2;
const UNBLOCK_CONNECTION: u8 = 3;

impl Wire for Order {
    fn encode(&self, out: &mut Writer<'_>) {
        match self {
            Self::Block { source, seconds } => {
                out.u8(BLOCK);
                source.encode(out);
                out.u32(*seconds);
            }
            Self::Unblock(source) => {
                out.u8(UNBLOCK);
                source.encode(out);
            }
            Self::UnblockConnection(ends) => {
                out.u8(UNBLOCK_CONNECTION);
                for (host, port) in ends {
                    host.encode(out);
                    out.u16(*port);
                }
            }
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let kind = input.u8()?;
        let first = Host::decode(input)?;
        match kind {
            BLOCK => match input.u32()? {
                seconds @ 1..=SECONDS_MAX => Ok(Self::Block {
                    source: first,
                    seconds,
                }),
                _ => Err(BadBytes),
            },
            UNBLOCK => Ok(Self::Unblock(first)),
            UNBLOCK_CONNECTION => {
                let first = (first, input.u16()?);
                let second = (Host::decode(input)?, input.u16()?);
                Ok(Self::UnblockConnection([first, second]))
            }
            _ => Err(BadBytes),
        }
    }
}

/// A source that is blocked, manually or by what a function found. Joins: the one that ends last, whole; of two that end together the one
/// manually.
///
/// Entries are never touched, so one is held from when its block was written, or later: for at least as long as the block lasts, if
/// its idle class is that of the block that ends last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Value)]
#[join(max)]
#[value(idle_class = Self::class)]
pub struct Block {
    /// From this time on it is not, in seconds of the cluster's time.
    pub until: Tick,
    /// For how long it was blocked manually, in seconds; 0: a function did.
    #[wire(varint)]
    pub manual_s: Tick,
}

impl Block {
    /// A block by a function, whose table holds all of those for one time.
    pub const fn found(until: Tick) -> Self {
        Self { until, manual_s: 0 }
    }

    /// A block manually that begins now.
    pub const fn manual(now: Tick, seconds: Tick) -> Self {
        Self {
            until: now.saturating_add(seconds),
            manual_s: seconds,
        }
    }

    /// Whether an operator ordered it.
    #[must_use]
    pub const fn is_manual(&self) -> bool {
        self.manual_s != 0
    }

    /// Seconds that entries of a table are held, by their idle class: blocks by a function first.
    pub fn idle(found_s: Tick) -> [Tick; HELD_S.len() + 1] {
        core::array::from_fn(|class| match class {
            0 => found_s,
            _ => HELD_S[class - 1],
        })
    }

    fn class(&self) -> u8 {
        match self.manual_s {
            0 => 0,
            seconds => 1 + held_class(seconds),
        }
    }
}

/// What becomes of a table's entry.
#[derive(Debug)]
pub enum Change<K, V> {
    /// There is none to remove.
    None,
    /// It is written, where there is room.
    Write(Entry<K, V>, V),
    /// With a generation of its own: no copy of what is removed brings it back, wherever it comes from.
    Remove(At<Single<K>, V>),
}

impl<K: Key, V: Value> Change<K, V> {
    /// A block of `key` that is written, or its end.
    pub fn new(table: &Map<K, V>, key: K, block: Option<V>) -> Result<Self, Late> {
        Ok(match block {
            Some(block) => Self::Write(table.entry(key)?, block),
            None => table.get(&key)?.map_or(Self::None, Self::Remove),
        })
    }

    /// What becomes of the frame that reported it.
    pub fn write(self, table: &mut TableAct<'_, Single<K>, V>) -> Verdict {
        match self {
            Self::None => {}
            Self::Write(room, block) => {
                if !table.put(room, block) {
                    return Verdict::Drop(Reason::TableFull);
                }
            }
            Self::Remove(at) => table.remove(&at),
        }
        Verdict::Consumed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::laws;
    use core::net::{Ipv4Addr, Ipv6Addr};

    fn orders() -> [Order; 4] {
        let source = Ipv4Addr::new(192, 0, 2, 7).into();
        [
            Order::Block { source, seconds: 1 },
            Order::Block {
                source: Ipv6Addr::LOCALHOST.into(),
                seconds: SECONDS_MAX,
            },
            Order::Unblock(source),
            Order::UnblockConnection([(source, 9), (Ipv6Addr::LOCALHOST.into(), 80)]),
        ]
    }

    #[test]
    fn orders_come_back_from_their_frames_and_nothing_else_does() {
        for order in orders() {
            let frame = order.frame();
            assert_eq!(Order::read(&frame), Some(order));
            for length in 0..frame.len() {
                assert_eq!(Order::read(&frame[..length]), None, "{order:?}: {length}");
            }
            assert_eq!(Order::read(&[&frame[..], &[0]].concat()), None);
            let mut other = frame.clone();
            other[PAYLOAD_AT - 1] = 0;
            assert_eq!(Order::read(&other), None, "of another protocol");
        }
        for seconds in [0, SECONDS_MAX + 1, Tick::MAX] {
            let source = Ipv4Addr::LOCALHOST.into();
            assert_eq!(Order::read(&Order::Block { source, seconds }.frame()), None);
        }
    }

    #[test]
    fn blocks_join_as_the_law_says_and_are_held_as_long_as_they_last() {
        let block = |draw: u64| match draw % 3 {
            0 => Block::found((draw % 7) as Tick),
            _ => Block::manual((draw % 5) as Tick, (1 + draw / 5 % 4) as Tick),
        };
        for draw in 0..500 {
            laws::value(block(draw), block(draw * 7 + 1), block(draw * 5 + 2));
        }
        let idle = Block::idle(7);
        assert_eq!(idle[usize::from(Block::found(Tick::MAX).class())], 7);
        for seconds in [1, 60, 61, 86_401, SECONDS_MAX] {
            let class = usize::from(Block::manual(5, seconds).class());
            assert!(idle[class] >= seconds, "{seconds} s");
        }
        // What a member of another build may write has a class, too.
        assert!(usize::from(Block::manual(5, Tick::MAX).class()) < idle.len());
        assert!(Block::manual(5, 1).is_manual() && !Block::found(6).is_manual());
    }
}
