//! The header of a state message.

use core::time::Duration;

use crate::{ClusterId, Epoch, MemberId, Time};

use super::refused::Refused;
use super::{Reader, write_varint};

/// The newest wire version that this build understands, and speaks once all members of an epoch do.
pub const WIRE_VERSION: u8 = 1;
/// What the version after it may be like, so that an upgrade from one to the next is tested before there is one: tests and the
/// simulator let hosts understand it, no configuration file does. Its timestamps have six bytes.
pub const WIRE_VERSION_TRIAL: u8 = WIRE_VERSION + 1;
/// The most bytes of a header without echoes.
pub(crate) const HEADER_BYTES_MAX: usize = 1 + 5 + 5 + 8 + 9 + 1;
/// The most bytes of one echo.
pub(crate) const ECHO_BYTES_MAX: usize = 3 + 8 + 10;

/// The header of a state message, its echoes still encoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header<'a> {
    pub(crate) cluster: ClusterId,
    pub(crate) epoch: Epoch,
    /// The sender's clock when it wrote the message; means something to the sender only.
    pub(crate) timestamp: Time,
    /// The last sequence that the sender had committed.
    pub(crate) head: u64,
    echoes: &'a [u8],
}

/// The latest timestamp that the sender got from `member`, and for how long it held it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Echo {
    pub(crate) member: MemberId,
    pub(crate) timestamp: Time,
    pub(crate) held: Duration,
}

impl Echo {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        write_varint(out, u64::from(self.member.0));
        out.extend_from_slice(&self.timestamp.0.to_le_bytes());
        write_varint(
            out,
            u64::try_from(self.held.as_micros()).unwrap_or(u64::MAX),
        );
    }

    fn read(reader: &mut Reader<'_>) -> Option<Echo> {
        Some(Echo {
            member: reader.member()?,
            timestamp: Time(reader.fixed_u64()?),
            held: Duration::from_micros(reader.varint()?),
        })
    }
}

impl<'a> Header<'a> {
    /// Appends a header with no echo; `Header::count_echo` then makes room for one more.
    pub(crate) fn write(
        out: &mut Vec<u8>,
        version: u8,
        cluster: ClusterId,
        epoch: Epoch,
        timestamp: Time,
        head: u64,
    ) -> EchoCount {
        out.push(version);
        write_varint(out, u64::from(cluster.0));
        write_varint(out, u64::from(epoch.0));
        out.extend_from_slice(&timestamp.0.to_le_bytes()[..timestamp_bytes(version)]);
        write_varint(out, head);
        out.push(0);
        EchoCount { at: out.len() - 1 }
    }

    /// Reads the header of a version up to `newest` and leaves the reader before the first frame.
    pub(crate) fn read(reader: &mut Reader<'a>, newest: u8) -> Result<Header<'a>, Refused> {
        let version = match reader.byte() {
            Some(version) if version > newest => return Err(Refused::FutureVersion),
            None | Some(0) => return Err(Refused::Malformed),
            Some(version) => version,
        };
        Header::read_fields(reader, version).ok_or(Refused::Malformed)
    }

    fn read_fields(reader: &mut Reader<'a>, version: u8) -> Option<Header<'a>> {
        let cluster = ClusterId(reader.u32()?);
        let epoch = Epoch(reader.u32()?);
        let mut timestamp = [0; 8];
        let bytes = reader.take(timestamp_bytes(version))?;
        timestamp[..bytes.len()].copy_from_slice(bytes);
        let timestamp = Time(u64::from_le_bytes(timestamp));
        let head = reader.sequence()?;
        let count = reader.byte()?;
        let from = reader.rest();
        for _ in 0..count {
            Echo::read(reader)?;
        }
        let echoes = &from[..from.len() - reader.rest().len()];
        Some(Header {
            cluster,
            epoch,
            timestamp,
            head,
            echoes,
        })
    }

    /// All echoes of this message.
    pub(crate) fn echoes(&self) -> impl Iterator<Item = Echo> + use<'a> {
        let mut reader = Reader::new(self.echoes);
        core::iter::from_fn(move || Echo::read(&mut reader))
    }

    /// The echo of `member`'s own timestamp, if this message has one.
    pub(crate) fn echo_of(&self, member: MemberId) -> Option<Echo> {
        let mut reader = Reader::new(self.echoes);
        while !reader.is_empty() {
            let echo = Echo::read(&mut reader)?;
            if echo.member == member {
                return Some(echo);
            }
        }
        None
    }
}

/// Of the trial version six bytes: enough for nine years in microseconds.
fn timestamp_bytes(version: u8) -> usize {
    if version >= WIRE_VERSION_TRIAL { 6 } else { 8 }
}

/// Where the number of echoes of a header being written stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EchoCount {
    at: usize,
}

impl EchoCount {
    pub(crate) fn set(self, out: &mut [u8], count: u8) {
        out[self.at] = count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_header() {
        let mut out = Vec::new();
        let (cluster, epoch) = (ClusterId(300), Epoch(2));
        let count = Header::write(&mut out, WIRE_VERSION, cluster, epoch, Time(0x0102), 1_000);
        Echo {
            member: MemberId(7),
            timestamp: Time(5),
            held: Duration::from_micros(200),
        }
        .write(&mut out);
        count.set(&mut out, 1);
        let golden = [
            1, 0xac, 0x02, 2, 2, 1, 0, 0, 0, 0, 0, 0, 0xe8, 0x07, 1, 7, 5, 0, 0, 0, 0, 0, 0, 0,
            0xc8, 0x01,
        ];
        assert_eq!(out, golden);
        let mut reader = Reader::new(&out);
        let header = Header::read(&mut reader, WIRE_VERSION).unwrap();
        assert!(reader.is_empty());
        assert_eq!((header.cluster, header.epoch), (ClusterId(300), Epoch(2)));
        assert_eq!((header.timestamp, header.head), (Time(0x0102), 1_000));
        assert_eq!(
            header.echo_of(MemberId(7)).unwrap().held,
            Duration::from_micros(200)
        );
        assert_eq!(header.echo_of(MemberId(8)), None);
        for cut in 0..out.len() {
            assert!(
                Header::read(&mut Reader::new(&out[..cut]), WIRE_VERSION).is_err(),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn another_version_is_reported_from_rubbish() {
        assert_eq!(
            Header::read(&mut Reader::new(&[2, 0]), WIRE_VERSION).err(),
            Some(Refused::FutureVersion)
        );
        assert_eq!(
            Header::read(&mut Reader::new(&[0, 0]), WIRE_VERSION).err(),
            Some(Refused::Malformed)
        );
    }

    #[test]
    fn the_trial_version_is_read_by_who_understands_it_and_is_no_other() {
        let mut out = Vec::new();
        let at = Time(0x0605_0403_0201);
        Header::write(
            &mut out,
            WIRE_VERSION_TRIAL,
            ClusterId(1),
            Epoch(2),
            at,
            300,
        );
        assert_eq!(out, [2, 1, 2, 1, 2, 3, 4, 5, 6, 0xac, 2, 0]);
        let read = |newest| Header::read(&mut Reader::new(&out), newest);
        let header = read(WIRE_VERSION_TRIAL).unwrap();
        assert_eq!((header.timestamp, header.head), (at, 300));
        assert_eq!(read(WIRE_VERSION).err(), Some(Refused::FutureVersion));
        // Under the number of the version before, the same bytes are no header.
        out[0] = WIRE_VERSION;
        let header = Header::read(&mut Reader::new(&out), WIRE_VERSION_TRIAL);
        assert_eq!(header.err(), Some(Refused::Malformed));
    }
}
