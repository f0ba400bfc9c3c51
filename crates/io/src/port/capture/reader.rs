//! Reads packets from pcap and pcapng, one at a time, whatever the byte order and time resolution.

use super::{CaptureError, CaptureProblem, CapturedPacket, LINK_TYPE_ETHERNET, PACKET_BYTES_MAX};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use super::pcapng::{BLOCK_SECTION, Interface};
const BUFFER_BYTES: usize = 256 * 1024;

/// A capture being read from a file or any source of bytes.
pub struct CaptureReader {
    source: BufReader<Box<dyn Read + Send>>,
    file: String,
    /// Bytes taken from the source.
    offset: u64,
    /// Where the record being read begins, for errors.
    record: u64,
    pub(super) format: Format,
    pub(super) big_endian: bool,
    pub(super) last_timestamp_ns: u64,
    /// After the end or an error nothing more is read.
    ended: bool,
}

pub(super) enum Format {
    Pcap {
        nanoseconds: bool,
        extra_header_bytes: u64,
    },
    Pcapng {
        interfaces: Vec<Interface>,
    },
}

pub(super) type Outcome<T> = Result<T, CaptureProblem>;

impl CaptureReader {
    /// Opens a file and reads its header. Fails as [`CaptureReader::next`], and when the file cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<CaptureReader, CaptureError> {
        let file = path.as_ref().display().to_string();
        match File::open(path) {
            Ok(source) => CaptureReader::new(file, source),
            Err(error) => Err(CaptureError {
                file,
                offset: 0,
                problem: CaptureProblem::Unreadable(error.to_string()),
            }),
        }
    }

    /// Reads the header of a capture from `source`, which errors call `file`. Buffers 256 KiB.
    pub fn new(
        file: impl Into<String>,
        source: impl Read + Send + 'static,
    ) -> Result<CaptureReader, CaptureError> {
        let mut reader = CaptureReader {
            source: BufReader::with_capacity(BUFFER_BYTES, Box::new(source)),
            file: file.into(),
            offset: 0,
            record: 0,
            format: Format::Pcapng {
                interfaces: Vec::new(),
            },
            big_endian: false,
            last_timestamp_ns: 0,
            ended: false,
        };
        match reader.read_file_header() {
            Ok(()) => Ok(reader),
            Err(problem) => Err(reader.error(problem)),
        }
    }

    /// The next packet, its bytes into `into` (cleared first); `None` at the end.
    ///
    /// `into` never grows past [`PACKET_BYTES_MAX`]. An error is the last thing that the reader gives: then `None` for ever.
    pub fn next(&mut self, into: &mut Vec<u8>) -> Result<Option<CapturedPacket>, CaptureError> {
        into.clear();
        if self.ended {
            return Ok(None);
        }
        let outcome = match self.format {
            Format::Pcap {
                nanoseconds,
                extra_header_bytes,
            } => self.next_pcap(nanoseconds, extra_header_bytes, into),
            Format::Pcapng { .. } => self.next_pcapng(into),
        };
        match outcome {
            Ok(Some(packet)) => {
                self.last_timestamp_ns = packet.timestamp_ns;
                Ok(Some(packet))
            }
            Ok(None) => {
                self.ended = true;
                Ok(None)
            }
            Err(problem) => {
                self.ended = true;
                into.clear();
                Err(self.error(problem))
            }
        }
    }

    /// The file, as its opener named it.
    pub fn file(&self) -> &str {
        &self.file
    }

    fn error(&self, problem: CaptureProblem) -> CaptureError {
        CaptureError {
            file: self.file.clone(),
            offset: self.record,
            problem,
        }
    }

    fn read_file_header(&mut self) -> Outcome<()> {
        let magic: [u8; 4] = self.array()?;
        let little = u32::from_le_bytes(magic);
        if little == BLOCK_SECTION {
            return self.read_section_header();
        }
        self.big_endian = matches!(little, 0xD4C3_B2A1 | 0x4D3C_B2A1 | 0x34CD_B2A1);
        // The last is Kuznetzov's format: 8 bytes more (interface, protocol, packet type) in each record.
        self.format = match if self.big_endian {
            little.swap_bytes()
        } else {
            little
        } {
            0xA1B2_C3D4 => Format::Pcap {
                nanoseconds: false,
                extra_header_bytes: 0,
            },
            0xA1B2_3C4D => Format::Pcap {
                nanoseconds: true,
                extra_header_bytes: 0,
            },
            0xA1B2_CD34 => Format::Pcap {
                nanoseconds: false,
                extra_header_bytes: 8,
            },
            _ => return Err(CaptureProblem::NotACapture(magic)),
        };
        // Version, time zone, accuracy and snap length: no reader acts on them.
        self.skip(16)?;
        // The upper half may hold a frame check sequence's length.
        check_link_type(self.word()? as u16)
    }

    fn next_pcap(
        &mut self,
        nanoseconds: bool,
        extra_header_bytes: u64,
        into: &mut Vec<u8>,
    ) -> Outcome<Option<CapturedPacket>> {
        if self.at_end()? {
            return Ok(None);
        }
        let header: [u8; 16] = self.array()?;
        let [seconds, fraction, captured, original] = [0, 4, 8, 12]
            .map(|at| self.ordered([header[at], header[at + 1], header[at + 2], header[at + 3]]));
        let (seconds, fraction) = (u64::from(seconds), u64::from(fraction));
        self.skip(extra_header_bytes)?;
        self.bytes(captured, into)?;
        // Two 32-bit numbers: no overflow.
        let timestamp_ns = seconds * 1_000_000_000
            + if nanoseconds {
                fraction
            } else {
                fraction * 1000
            };
        Ok(Some(packet(timestamp_ns, captured, original, 0)))
    }

    /// Whether the source ends cleanly here; otherwise a record begins here.
    pub(super) fn at_end(&mut self) -> Outcome<bool> {
        self.record = self.offset;
        Ok(self.buffered()?.is_empty())
    }

    fn buffered(&mut self) -> Outcome<&[u8]> {
        // An interrupted read is tried again; the borrow checker wants the loop apart from the result.
        loop {
            match self.source.fill_buf() {
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(CaptureProblem::Unreadable(error.to_string())),
            }
        }
        Ok(self.source.buffer())
    }

    pub(super) fn fill(&mut self, into: &mut [u8]) -> Outcome<()> {
        self.source
            .read_exact(into)
            .map_err(|error| match error.kind() {
                ErrorKind::UnexpectedEof => CaptureProblem::CutShort,
                _ => CaptureProblem::Unreadable(error.to_string()),
            })?;
        self.offset += into.len() as u64;
        Ok(())
    }

    pub(super) fn array<const N: usize>(&mut self) -> Outcome<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn word(&mut self) -> Outcome<u32> {
        let bytes = self.array()?;
        Ok(self.ordered(bytes))
    }

    pub(super) fn ordered(&self, bytes: [u8; 4]) -> u32 {
        if self.big_endian {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        }
    }

    pub(super) fn skip(&mut self, mut bytes: u64) -> Outcome<()> {
        while bytes > 0 {
            let step = bytes.min(self.buffered()?.len() as u64);
            if step == 0 {
                return Err(CaptureProblem::CutShort);
            }
            self.source.consume(step as usize);
            self.offset += step;
            bytes -= step;
        }
        Ok(())
    }

    pub(super) fn bytes(&mut self, count: u32, into: &mut Vec<u8>) -> Outcome<()> {
        if count as usize > PACKET_BYTES_MAX {
            return Err(CaptureProblem::PacketTooLong(count));
        }
        into.resize(count as usize, 0);
        self.fill(into)
    }
}

impl std::fmt::Debug for CaptureReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("CaptureReader")
            .field("file", &self.file)
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

pub(super) fn packet(
    timestamp_ns: u64,
    captured: u32,
    original: u32,
    interface: u32,
) -> CapturedPacket {
    CapturedPacket {
        timestamp_ns,
        original_length: original.max(captured),
        interface,
        truncated: original > captured,
    }
}

pub(super) fn check_link_type(link_type: u16) -> Outcome<()> {
    if link_type == LINK_TYPE_ETHERNET {
        Ok(())
    } else {
        Err(CaptureProblem::LinkType(link_type))
    }
}
