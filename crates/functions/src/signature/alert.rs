//! What all instances know of the signatures found, and of who is blocked.

use core::net::IpAddr;

use asterism_function::notice::End;
use asterism_function::objects::hash;
use asterism_function::{Ask, Key, Late, Reason, Tick, Value, Verdict, Wire};

use super::flow::{Stream, Target};
use super::{SignatureState, Signatures};
use asterism_blocking::blocked::{self, BlockedRecord};
use asterism_blocking::manual::{self, BY_HAND, Change, Order};

/// What an alert is about: there is one for each stream and signature.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Wire)]
pub struct Subject {
    /// The stream.
    pub stream: Stream,
    /// The signature's identifier; 0: the stream was cut into more pieces than are kept.
    #[wire(varint)]
    pub id: u32,
}

impl Key for Subject {
    const IS_OF_CONVERSATION: bool = true;
    fn between(&self) -> Option<(IpAddr, IpAddr)> {
        self.stream.between()
    }
    fn hash(&self, seed: u64) -> u64 {
        hash::word(self.id.into(), self.stream.hash(seed))
    }
}

/// A signature that was found. Joins: the earliest time; blocked if anybody blocked for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, Value)]
pub struct Alert {
    /// When it was first found.
    #[join(min)]
    pub first: Tick,
    /// Whether the packet was dropped.
    #[join(or)]
    pub blocked: bool,
}

/// Who is blocked. Joins: the latest end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, Value)]
pub struct Block {
    /// From this time on it is not.
    #[join(max)]
    pub until: Tick,
}

/// Cursors from here on are of sources that are blocked manually.
const BY_HAND_FROM: u32 = 1 << 31;

/// A part of who is blocked: for a signature, then manually. Where to go on.
pub(super) fn blocks(
    state: &SignatureState,
    (cursor, count): (u32, u32),
    out: &mut Vec<u8>,
) -> Option<u32> {
    if cursor >= BY_HAND_FROM {
        let range = (cursor - BY_HAND_FROM, count);
        let more = state.manual.for_each_from(range, |row, block, _| {
            let record = BlockedRecord {
                source: End::host(row.0),
                destination: End::default(),
                until: block.until,
                by: BY_HAND.to_owned(),
            };
            blocked::write(&record, out);
        });
        return more.map(|next| next + BY_HAND_FROM);
    }
    let more = state
        .blocked
        .for_each_from((cursor, count), |row, block, _| {
            let (source, destination) = match row.0 {
                Target::Source(host) => (End::host(host), End::default()),
                Target::Connection(stream) => (
                    End::endpoint(stream.source),
                    End::endpoint(stream.destination),
                ),
            };
            let record = BlockedRecord {
                source,
                destination,
                until: block.until,
                by: "a signature was found".to_owned(),
            };
            blocked::write(&record, out);
        });
    more.or(Some(BY_HAND_FROM))
}

impl Signatures {
    /// Blocks a source manually, or lifts the block of a source or of a connection, no matter who began it.
    #[cold]
    #[inline(never)]
    pub(super) fn reported(ask: Ask<'_, SignatureState>) -> Result<Verdict, Late> {
        match Order::read(ask.packet().bytes()) {
            Some(Order::Block { source, seconds }) => {
                let block = manual::Block::manual(ask.now(), seconds);
                let change = Change::new(&ask.manual, source, Some(block))?;
                Ok(change.write(&mut ask.act()?.manual))
            }
            Some(Order::Unblock(source)) => {
                let changes = (
                    Change::new(&ask.manual, source, None),
                    Change::new(&ask.blocked, Target::Source(source), None),
                );
                let (manual, found) = ask.all(changes)?;
                let mut act = ask.act()?;
                manual.write(&mut act.manual);
                Ok(found.write(&mut act.blocked))
            }
            Some(Order::UnblockConnection([source, destination])) => {
                let change = |is_tcp| {
                    let stream = Stream {
                        source,
                        destination,
                        is_tcp,
                    };
                    Change::new(&ask.blocked, Target::Connection(stream.connection()), None)
                };
                let (tcp, udp) = ask.all((change(true), change(false)))?;
                let mut act = ask.act()?;
                tcp.write(&mut act.blocked);
                Ok(udp.write(&mut act.blocked))
            }
            None => Ok(Verdict::Drop(Reason::UnsupportedProtocol)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::flow::Place;
    use super::*;
    use asterism_function::{Reader, Writer, laws};

    #[test]
    fn values_join_as_the_law_says() {
        let number = |draw: u64, place: u64| hash::words(draw, place, 5) % 4;
        for draw in 0..500 {
            let [a, b, c] = [draw, draw + 10_000, draw + 20_000].map(|draw| Alert {
                first: number(draw, 0) as u32,
                blocked: number(draw, 1) == 0,
            });
            laws::value(a, b, c);
            let [a, b, c] = [draw, draw + 10_000, draw + 20_000].map(|draw| Block {
                until: number(draw, 2) as u32,
            });
            laws::value(a, b, c);
        }
    }

    #[test]
    fn keys_and_values_come_back_from_the_wire() {
        fn back<W: Wire + PartialEq + core::fmt::Debug>(value: W) {
            let mut bytes = Vec::new();
            value.encode(&mut Writer::new(&mut bytes, &[]));
            let mut input = Reader::new(&bytes, &[]);
            assert_eq!(W::decode(&mut input).as_ref(), Ok(&value));
            assert!(input.is_empty());
            for length in 0..bytes.len() {
                assert!(W::decode(&mut Reader::new(&bytes[..length], &[])).is_err());
            }
        }
        let v4 = core::net::Ipv4Addr::new(192, 0, 2, 1);
        for is_tcp in [false, true] {
            let stream = Stream {
                source: (v4.into(), 1_025),
                destination: (core::net::Ipv6Addr::LOCALHOST.into(), 80),
                is_tcp,
            };
            assert_eq!(stream.connection(), stream.back().connection());
            back(Subject { stream, id: 70_000 });
            back(Target::Connection(stream));
            back(Place::of(stream, u32::MAX, 0x0102_0304));
        }
        back(Target::Source(v4.into()));
        back(Block { until: u32::MAX });
        back(Alert {
            first: 7,
            blocked: true,
        });
    }
}
