//! Capture files: pcap and pcapng read, pcap written. Read [`CaptureReader`] first.
//!
//! A capture is hostile input: any bytes give packets or one clear error with the file's name, the offset and a cure. Memory
//! is bounded by [`PACKET_BYTES_MAX`] whatever a length field says, and nothing is allocated per packet once the caller's
//! buffer has grown. Only Ethernet is read, because functions see only Ethernet frames. Formats: draft-ietf-opsawg-pcap and
//! draft-ietf-opsawg-pcapng.

mod file_port;
mod pcapng;
mod reader;
mod writer;

pub use file_port::CapturePort;
pub use reader::CaptureReader;
pub use writer::CaptureWriter;

use asterism_placement::Time;

/// The longest packet that is read, in bytes: what capture tools use as their largest snap length.
pub const PACKET_BYTES_MAX: usize = 256 * 1024;
/// The most interfaces in a section of a pcapng file.
pub const INTERFACES_MAX: usize = 4096;

const LINK_TYPE_ETHERNET: u16 = 1;

/// What a capture says about a packet beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedPacket {
    /// When it was captured: nanoseconds since 1970. A simple packet block has no time: it gets the packet's before it.
    pub timestamp_ns: u64,
    /// Bytes on the wire; at least the number captured.
    pub original_length: u32,
    /// The capturing interface's number in its section (always 0 in pcap).
    pub interface: u32,
    /// Whether bytes are missing at the end, because the capture had a snap length.
    pub truncated: bool,
}

impl CapturedPacket {
    /// When it was captured, in microseconds since 1970: for a driver whose zero is 1970.
    pub fn time(&self) -> Time {
        Time::from_micros(self.timestamp_ns / 1000)
    }
}

/// Why a capture cannot be read or written any further. What was read or written before it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureError {
    /// The file, as its opener named it.
    pub file: String,
    /// Where the record begins that cannot be handled, in bytes from the file's start.
    pub offset: u64,
    /// What is wrong.
    pub problem: CaptureProblem,
}

/// What is wrong with a capture; see [`CaptureError`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptureProblem {
    /// The operating system's error at opening or reading.
    Unreadable(String),
    /// The operating system's error at creating or writing, and how many packets it lost.
    Unwritable(String),
    /// The first four bytes are of no known capture format.
    NotACapture([u8; 4]),
    /// The file ends inside a header or record.
    CutShort,
    /// A field contradicts the format.
    Malformed(&'static str),
    /// A packet claims this many bytes, more than [`PACKET_BYTES_MAX`].
    PacketTooLong(u32),
    /// The link type is not Ethernet.
    LinkType(u16),
}

impl std::fmt::Display for CaptureError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (file, offset) = (&self.file, self.offset);
        match &self.problem {
            CaptureProblem::Unreadable(error) => {
                write!(
                    formatter,
                    "cannot read capture {file} at byte {offset}: {error}"
                )
            }
            CaptureProblem::Unwritable(error) => write!(
                formatter,
                "cannot write capture {file} at byte {offset}: {error}; packets from here on are not in it: \
                 free space, or name another file"
            ),
            CaptureProblem::NotACapture([0x1F, 0x8B, ..]) => {
                write!(
                    formatter,
                    "{file} is compressed with gzip: decompress it first (gunzip)"
                )
            }
            CaptureProblem::NotACapture([0x28, 0xB5, 0x2F, 0xFD]) => {
                write!(
                    formatter,
                    "{file} is compressed with zstd: decompress it first (unzstd)"
                )
            }
            CaptureProblem::NotACapture(bytes) => write!(
                formatter,
                "{file} is not a capture: it begins with {bytes:02x?}; give a pcap or pcapng file"
            ),
            CaptureProblem::CutShort => write!(
                formatter,
                "capture {file} ends inside the record at byte {offset}: the packets before it were read; copy \
                 the file again, or cut it there"
            ),
            CaptureProblem::Malformed(field) => write!(
                formatter,
                "capture {file} is damaged at byte {offset}: {field}; the packets before it were read; write it \
                 again with a capture tool"
            ),
            CaptureProblem::PacketTooLong(length) => write!(
                formatter,
                "capture {file} is damaged at byte {offset}: a packet of {length} bytes, at most \
                 {PACKET_BYTES_MAX} are read; the packets before it were read"
            ),
            CaptureProblem::LinkType(link_type) => write!(
                formatter,
                "capture {file} has link type {link_type} ({}) at byte {offset}; functions take Ethernet (1) only: capture \
                 on an Ethernet interface, or rewrite it (tcprewrite --dlt=enet)",
                link_type_name(*link_type)
            ),
        }
    }
}

impl std::error::Error for CaptureError {}

/// Fuzz target: any bytes, read as a capture, give packets within their bounds, then the end or one error.
#[doc(hidden)]
pub fn fuzz_capture(bytes: &[u8]) {
    let Ok(mut reader) = CaptureReader::new("fuzz", std::io::Cursor::new(bytes.to_vec())) else {
        return;
    };
    let mut into = Vec::new();
    let mut packets = 0;
    loop {
        match reader.next(&mut into) {
            Ok(Some(packet)) => {
                packets += 1;
                assert!(into.len() <= bytes.len() && into.len() <= packet.original_length as usize);
                assert_eq!(
                    packet.truncated,
                    into.len() < packet.original_length as usize
                );
                // The smallest record is 16 bytes: more packets than that are a loop.
                assert!(packets <= bytes.len() / 16);
            }
            Ok(None) => break,
            Err(error) => {
                assert!(error.offset <= bytes.len() as u64 && error.to_string().contains("fuzz"));
                break;
            }
        }
    }
    assert_eq!(reader.next(&mut into), Ok(None));
}

/// Names of the link types met most, as the registry of tcpdump.org has them.
fn link_type_name(link_type: u16) -> &'static str {
    match link_type {
        0 => "BSD loopback",
        9 => "PPP",
        50 => "PPP over HDLC",
        101 | 12 | 14 => "raw IP",
        105 => "IEEE 802.11",
        108 => "OpenBSD loopback",
        113 => "Linux cooked, as captured on \"any\"",
        127 => "IEEE 802.11 with radiotap",
        147..=162 => "user-defined",
        220 => "USB",
        228 => "raw IPv4",
        229 => "raw IPv6",
        276 => "Linux cooked version 2, as captured on \"any\"",
        _ => "not known by name",
    }
}
