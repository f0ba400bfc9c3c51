//! Messages of the Port Control Protocol (RFC 6887 §7, §11.1, §13.2).

use core::net::{Ipv4Addr, Ipv6Addr};

use asterism_function::Protocol;

/// The port that servers listen at.
pub const PORT: u16 = 5_351;
/// Bytes of a message at most (§7).
pub const MESSAGE_BYTES_MAX: usize = 1_100;
/// The lifetime of a mapping that does not end.
pub(crate) const FOR_EVER: u32 = u32::MAX;

const VERSION: u8 = 2;
const RESPONSE: u8 = 0x80;
const HEADER: usize = 24;
/// Bytes of what is said of a mapping.
const MAP: usize = 36;
const OPCODE_ANNOUNCE: u8 = 0;
const OPCODE_MAP: u8 = 1;
const OPTION_PREFER_FAILURE: u8 = 2;
/// Options from this on may be left out of account by who does not know them.
const OPTIONAL: u8 = 0x80;

/// What came of a request (§7.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ResultCode {
    /// It was done.
    Success = 0,
    /// Its version is none of ours.
    UnsupportedVersion = 1,
    /// The mapping is not the asker's to change.
    NotAuthorized = 2,
    /// It is no request.
    Malformed = 3,
    /// It asks for something else than a mapping.
    UnsupportedOpcode = 4,
    /// It has an option that must be heeded and is not known.
    UnsupportedOption = 5,
    /// An option is not right.
    MalformedOption = 6,
    /// There is no port or no room.
    NoResources = 8,
    /// Only TCP and UDP have mappings.
    UnsupportedProtocol = 9,
    /// The subscriber has all that it may have.
    Quota = 10,
    /// The endpoint that it insists on cannot be had.
    CannotProvideExternal = 11,
    /// It came through another NAT, or lies.
    AddressMismatch = 12,
}

impl ResultCode {
    /// Whether the message itself is wrong, so that its sender is shown all of it.
    const fn is_about_the_message(self) -> bool {
        matches!(
            self,
            Self::Malformed
                | Self::UnsupportedOpcode
                | Self::UnsupportedOption
                | Self::MalformedOption
                | Self::AddressMismatch
        )
    }

    /// After how many seconds it may be asked again: what passes soon, and what does not (§7.4).
    pub(crate) const fn lifetime(self) -> u32 {
        match self {
            Self::NoResources | Self::Quota | Self::CannotProvideExternal => 30,
            _ => 1_800,
        }
    }
}

/// A number that the asker made up for a mapping: who does not know it may not change the mapping (§18.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nonce(pub [u8; 12]);

/// A request to make, prolong or end a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapRequest {
    /// Seconds; 0 ends it.
    pub lifetime: u32,
    /// Who asks.
    pub nonce: Nonce,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// The port of the asker.
    pub internal_port: u16,
    /// The outside port that it would like, or 0.
    pub external_port: u16,
    /// The outside address that it would like, or 0.0.0.0.
    pub external_address: Ipv4Addr,
    /// Another endpoint is of no use to it (§13.2).
    pub insists: bool,
}

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// How long the server's state has lived (§14.1).
    Announce,
    /// A mapping.
    Map(MapRequest),
}

/// Why a datagram is no request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Nobody is reported: it is an answer, or no message at all (§8.2).
    Silent,
    /// The asker is reported.
    Reported(ResultCode),
}

impl Request {
    /// Reads a request that came from an address.
    pub fn read(message: &[u8], source: Ipv4Addr) -> Result<Self, Refusal> {
        let [version, opcode, ..] = *message else {
            return Err(Refusal::Silent);
        };
        if opcode & RESPONSE != 0 {
            return Err(Refusal::Silent);
        }
        let reported = |code| Err(Refusal::Reported(code));
        if version != VERSION {
            return reported(ResultCode::UnsupportedVersion);
        }
        if message.len() > MESSAGE_BYTES_MAX || !message.len().is_multiple_of(4) {
            return reported(ResultCode::Malformed);
        }
        let Some((header, body)) = message.split_at_checked(HEADER) else {
            return reported(ResultCode::Malformed);
        };
        if part(header, 8) != source.to_ipv6_mapped().octets() {
            return reported(ResultCode::AddressMismatch);
        }
        let options = match opcode {
            OPCODE_ANNOUNCE => body,
            OPCODE_MAP => match body.split_at_checked(MAP) {
                Some((_, options)) => options,
                None => return reported(ResultCode::Malformed),
            },
            _ => return reported(ResultCode::UnsupportedOpcode),
        };
        let insists = read_options(options, opcode).map_err(Refusal::Reported)?;
        if opcode == OPCODE_ANNOUNCE {
            return Ok(Self::Announce);
        }
        let external = Ipv6Addr::from(part::<16>(body, 20));
        let request = MapRequest {
            lifetime: u32::from_be_bytes(part(header, 4)),
            nonce: Nonce(part(body, 0)),
            protocol: Protocol(body[12]),
            internal_port: u16::from_be_bytes(part(body, 16)),
            external_port: u16::from_be_bytes(part(body, 18)),
            external_address: external.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED),
            insists,
        };
        match (request.protocol.0, request.internal_port) {
            // All protocols have no ports (§11.1), and what ends them all must say so.
            (0, 1..) => reported(ResultCode::Malformed),
            (0, 0) => reported(ResultCode::UnsupportedProtocol),
            _ if ![Protocol::TCP, Protocol::UDP].contains(&request.protocol) => {
                reported(ResultCode::UnsupportedProtocol)
            }
            // All ports of a host are no mapping that many can share.
            (_, 0) => reported(ResultCode::NoResources),
            _ if insists && (request.lifetime == 0 || request.external_port == 0) => {
                reported(ResultCode::MalformedOption)
            }
            _ => Ok(Self::Map(request)),
        }
    }
}

/// Reads options (§7.3); whether the asker insists on its endpoint.
fn read_options(mut options: &[u8], opcode: u8) -> Result<bool, ResultCode> {
    let mut insists = false;
    while let [code, _, high, low, rest @ ..] = options {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let padded = length.next_multiple_of(4);
        options = rest.get(padded..).ok_or(ResultCode::MalformedOption)?;
        match *code {
            OPTION_PREFER_FAILURE if opcode == OPCODE_MAP => {
                if length != 0 || insists {
                    return Err(ResultCode::MalformedOption);
                }
                insists = true;
            }
            OPTIONAL.. => {}
            _ => return Err(ResultCode::UnsupportedOption),
        }
    }
    Ok(insists)
}

/// Where the options of a request begin.
fn options_at(request: &[u8]) -> usize {
    match request.get(1) {
        Some(&OPCODE_MAP) => HEADER + MAP,
        _ => HEADER,
    }
}

/// The options of a request, each with its header and its padding, as far as they are whole.
fn options(mut options: &[u8]) -> impl Iterator<Item = &[u8]> {
    core::iter::from_fn(move || {
        let [_, _, high, low, ..] = options else {
            return None;
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (option, rest) = options.split_at_checked(4 + length.next_multiple_of(4))?;
        options = rest;
        Some(option)
    })
}

/// Whether an option is one that this server processes.
fn is_processed(option: &[u8], opcode: u8) -> bool {
    opcode == OPCODE_MAP && option.first() == Some(&OPTION_PREFER_FAILURE)
}

/// An answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub(crate) code: ResultCode,
    /// Seconds that the mapping lives, or after which it may be asked again.
    pub(crate) lifetime: u32,
    /// The mapping's outside endpoint, if there is one.
    pub(crate) external: Option<(Ipv4Addr, u16)>,
}

impl Answer {
    pub(crate) const fn refusal(code: ResultCode) -> Self {
        Self {
            code,
            lifetime: code.lifetime(),
            external: None,
        }
    }

    /// Writes the answer to a request, given for how many seconds the server's state has lived (§8.5); returns its length.
    pub(crate) fn write(
        &self,
        request: &[u8],
        epoch: u32,
        out: &mut [u8; MESSAGE_BYTES_MAX],
    ) -> usize {
        // What was asked stands in the answer, as far as there is room: whole words, a header at least. Of options only those that were
        // processed (§7.3), but where it is them that are wrong.
        let whole = request.len().min(MESSAGE_BYTES_MAX) / 4 * 4;
        let copied = match self.code {
            ResultCode::UnsupportedVersion => 0,
            code if code.is_about_the_message() => whole,
            _ => whole.min(options_at(request)),
        };
        out[..copied].copy_from_slice(&request[..copied]);
        let mut length = copied.max(HEADER);
        out[copied..length].fill(0);
        if copied < whole && self.code != ResultCode::UnsupportedVersion {
            let opcode = request.get(1).copied().unwrap_or_default();
            for option in options(&request[copied..whole]) {
                if is_processed(option, opcode) {
                    out[length..length + option.len()].copy_from_slice(option);
                    length += option.len();
                }
            }
        }
        out[0] = VERSION;
        out[1] = RESPONSE | request.get(1).copied().unwrap_or_default();
        out[2] = 0;
        out[3] = self.code as u8;
        out[4..8].copy_from_slice(&self.lifetime.to_be_bytes());
        out[8..12].copy_from_slice(&epoch.to_be_bytes());
        out[12..HEADER].fill(0);
        let map = out[HEADER..length].first_chunk_mut::<MAP>();
        if let (Some((address, port)), Some(map)) = (self.external, map) {
            map[18..20].copy_from_slice(&port.to_be_bytes());
            map[20..].copy_from_slice(&address.to_ipv6_mapped().octets());
        }
        length
    }
}

/// `N` of the bytes from `at`, or zeros where there are not so many.
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let part = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    part.copied().unwrap_or([0; N])
}
