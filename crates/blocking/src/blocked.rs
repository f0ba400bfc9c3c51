//! Blocked sources as functions report them to the control plane, and how long blocks are held.

use asterism_function::notice::{self, End, read_option, read_text, write_option, write_text};
use asterism_function::{BadBytes, Host, Reader, Tick, Wire, Writer};

use asterism_function::records::Record;

/// The question of a `report` that [`BlockedRecord`]s answer: one for each entry, also of blocks that are over and not forgotten yet.
pub const BLOCKED_QUESTION: u32 = notice::QUESTION - 2;

/// The longest block, in seconds: a week.
pub const SECONDS_MAX: Tick = 7 * 24 * 3_600;

/// Seconds that an entry of each idle class is held: a block is in the first class that is no shorter. Times that people write,
/// close together where blocks are short: those are many when a table fills.
pub const HELD_S: [Tick; 8] = [
    60,
    300,
    600,
    1_800,
    3_600,
    6 * 3_600,
    24 * 3_600,
    SECONDS_MAX,
];

/// The class of a block that lasts so long: a place in [`HELD_S`].
pub fn held_class(seconds: Tick) -> u8 {
    let longer = |held: &&Tick| **held < seconds;
    let class = HELD_S.iter().take_while(longer).count();
    class.min(HELD_S.len() - 1) as u8
}

/// Something that is blocked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockedRecord {
    /// Whose packets are dropped; unknown: everybody's.
    pub source: End,
    /// The recipient; unknown: to all. Of a connection, its other end: both directions are dropped.
    pub destination: End,
    /// From this time on they are not, in seconds of the cluster's time; [`Tick::MAX`]: they always are.
    pub until: Tick,
    /// What for, in a few words.
    pub by: String,
}

impl Record for BlockedRecord {}

impl Wire for BlockedRecord {
    fn encode(&self, out: &mut Writer<'_>) {
        for end in [self.source, self.destination] {
            write_option(end.host, out, |host, out| host.encode(out));
            write_option(end.port, out, |port, out| out.u16(port));
        }
        out.u32(self.until);
        write_text(&self.by, out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let end = |input: &mut Reader<'_>| {
            Ok(End {
                host: read_option(input, Host::decode)?,
                port: read_option(input, Reader::u16)?,
            })
        };
        Ok(Self {
            source: end(input)?,
            destination: end(input)?,
            until: input.u32()?,
            by: read_text(input)?,
        })
    }
}

/// Appends a record.
pub fn write(record: &BlockedRecord, out: &mut Vec<u8>) {
    record.encode(&mut Writer::new(out, &[]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::records::read_records;
    use core::net::Ipv4Addr;

    #[test]
    fn records_come_back_and_nothing_else_does() {
        let record = BlockedRecord {
            source: End::host(Ipv4Addr::LOCALHOST.into()),
            destination: End {
                host: None,
                port: Some(443),
            },
            until: Tick::MAX,
            by: "line 7: block 10m any".to_owned(),
        };
        let mut bytes = Vec::new();
        write(&record, &mut bytes);
        write(&record, &mut bytes);
        let mut back = Vec::new();
        assert!(read_records(&bytes, |record: BlockedRecord| back.push(record)));
        assert_eq!(back, [record.clone(), record]);
        for length in 1..bytes.len() {
            let whole = read_records(&bytes[..length], |_: BlockedRecord| {});
            assert_eq!(whole, length == bytes.len() / 2, "{length} bytes");
        }
    }
}
