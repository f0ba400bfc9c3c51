//! Capture files made in memory, byte by byte, and read back.

use asterism_io::port::{CaptureError, CaptureReader, CapturedPacket};
use std::io::{self, Cursor, Write};
use std::sync::mpsc;

pub(crate) type Packets = Vec<(CapturedPacket, Vec<u8>)>;

pub(crate) fn read(bytes: &[u8]) -> (Packets, Option<CaptureError>) {
    let mut reader = match CaptureReader::new("test.pcap", Cursor::new(bytes.to_vec())) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut packets = Vec::new();
    let mut into = Vec::new();
    loop {
        match reader.next(&mut into) {
            Ok(Some(packet)) => packets.push((packet, into.clone())),
            Ok(None) => return (packets, None),
            Err(error) => {
                assert_eq!(
                    reader.next(&mut into),
                    Ok(None),
                    "an error is the last thing"
                );
                return (packets, Some(error));
            }
        }
    }
}

/// Writes numbers in one byte order.
#[derive(Default)]
pub(crate) struct Bytes {
    pub(crate) big: bool,
    pub(crate) bytes: Vec<u8>,
}

impl Bytes {
    pub(crate) fn u16(&mut self, value: u16) -> &mut Bytes {
        self.bytes.extend(if self.big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        });
        self
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Bytes {
        self.bytes.extend(if self.big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        });
        self
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Bytes {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub(crate) fn padded(&mut self, bytes: &[u8]) -> &mut Bytes {
        self.raw(bytes)
            .raw(&[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()])
    }

    pub(crate) fn block(&mut self, kind: u32, body: &Bytes) -> &mut Bytes {
        let length = body.bytes.len() as u32 + 12;
        self.u32(kind).u32(length).raw(&body.bytes).u32(length)
    }

    pub(crate) fn fresh(&self) -> Bytes {
        Bytes {
            big: self.big,
            bytes: Vec::new(),
        }
    }
}

pub(crate) fn pcap(
    big: bool,
    magic: u32,
    link_type: u32,
    records: &[(u32, u32, &[u8], u32)],
) -> Vec<u8> {
    let mut file = Bytes {
        big,
        ..Bytes::default()
    };
    file.u32(magic)
        .u16(2)
        .u16(4)
        .u32(0)
        .u32(0)
        .u32(65_535)
        .u32(link_type);
    for &(seconds, fraction, bytes, original) in records {
        file.u32(seconds)
            .u32(fraction)
            .u32(bytes.len() as u32)
            .u32(original);
        if magic == 0xA1B2_CD34 {
            file.raw(&[0; 8]);
        }
        file.raw(bytes);
    }
    file.bytes
}

pub(crate) fn section(file: &mut Bytes) {
    let mut body = file.fresh();
    body.u32(0x1A2B_3C4D)
        .u16(1)
        .u16(0)
        .u32(u32::MAX)
        .u32(u32::MAX);
    file.block(0x0A0D_0D0A, &body);
}

/// An interface with a snap length and the options `if_name`, `if_tsresol`, `if_tsoffset`.
pub(crate) fn interface(
    file: &mut Bytes,
    link_type: u16,
    snap_length: u32,
    resolution: u8,
    offset_seconds: i64,
) {
    let mut body = file.fresh();
    body.u16(link_type).u16(0).u32(snap_length);
    body.u16(2).u16(5).padded(b"eth00");
    body.u16(9).u16(1).padded(&[resolution]);
    body.u16(14).u16(8);
    let offset = if file.big {
        offset_seconds.to_be_bytes()
    } else {
        offset_seconds.to_le_bytes()
    };
    body.raw(&offset).u16(0).u16(0);
    file.block(1, &body);
}

pub(crate) fn enhanced(file: &mut Bytes, interface: u32, units: u64, bytes: &[u8], original: u32) {
    let mut body = file.fresh();
    body.u32(interface)
        .u32((units >> 32) as u32)
        .u32(units as u32);
    body.u32(bytes.len() as u32).u32(original).padded(bytes);
    // A comment behind the packet.
    body.u16(1).u16(3).padded(b"why").u16(0).u16(0);
    file.block(6, &body);
}

/// A sink whose bytes come out of a channel.
pub(crate) struct Pipe(mpsc::Sender<Vec<u8>>);

impl Pipe {
    pub(crate) fn new() -> (Pipe, mpsc::Receiver<Vec<u8>>) {
        let (sender, receiver) = mpsc::channel();
        (Pipe(sender), receiver)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn collected(written: &mpsc::Receiver<Vec<u8>>) -> Packets {
    let (packets, error) = read(&written.try_iter().flatten().collect::<Vec<u8>>());
    assert_eq!(error, None);
    packets
}
