//! OpenFlow 1.3 and 1.5: the messages that steering needs, as bytes and back. No I/O, no clock, no state but [`Inbox`].
//!
//! Any bytes give a message or a [`WireError`]; a message that steering does not need is [`Message::Other`]. What is read is at
//! most as large as the message that it stands in. Sources: OpenFlow Switch Specification 1.3.5 and 1.5.1, chapter 7, and
//! Open vSwitch's `group-table` extension for the method by which a group selects.
//!
//! This file has messages and their headers; `flow.rs`, `group.rs` and `port.rs` have what is in them, `matching.rs` and
//! `action.rs` what is in those; `inbox.rs` cuts a stream into messages.

mod action;
mod bytes;
mod error;
mod flow;
mod group;
mod inbox;
mod matching;
mod port;

pub use action::{Action, Instruction, MacAddress};
pub use error::{SwitchError, WireError};
pub use flow::{ALL_TABLES, Flow, FlowCommand, FlowFilter, FlowMod};
pub use group::{ALL_GROUPS, Bucket, Group, GroupCommand, GroupMod, Selection};
pub use inbox::{Inbox, PENDING_BYTES_MAX};
pub use matching::{Match, Network};
pub use port::{PORT_NUMBER_MAX, Port, PortReason};

use bytes::{Reader, Writer};

/// Bytes of a message's header.
pub const HEADER_BYTES: usize = 8;
/// Bytes of a greeting's bitmaps that are read; versions behind them do not exist.
const BITMAPS_READ: usize = 1;

/// A version that is spoken here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// OpenFlow 1.3.
    V13 = 4,
    /// OpenFlow 1.5, which has bundles.
    V15 = 6,
}

impl Version {
    fn of(number: u8) -> Result<Version, WireError> {
        match number {
            4 => Ok(Version::V13),
            6 => Ok(Version::V15),
            other => Err(WireError::Version(other)),
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Version::V13 => "OpenFlow 1.3",
            Version::V15 => "OpenFlow 1.5",
        })
    }
}

/// The versions that one end speaks, as its greeting says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The greatest version number.
    pub greatest: u8,
    /// A bit for each version number up to 31; none of an end that sends no bitmap.
    pub bitmap: Option<u32>,
}

impl Greeting {
    /// The greeting of an end that speaks these.
    #[must_use]
    pub fn new(versions: &[Version]) -> Greeting {
        let greatest = versions.iter().map(|version| *version as u8).max();
        let bits = versions.iter().map(|version| 1 << (*version as u8));
        Greeting {
            greatest: greatest.unwrap_or_default(),
            bitmap: Some(bits.fold(0, std::ops::BitOr::bitor)),
        }
    }

    /// The version in which two ends go on (OpenFlow 1.5.1, section 6.3.1): the greatest that both bitmaps have, or without a
    /// bitmap the smaller of both greatest ones. `None`: there is none that is spoken here.
    #[must_use]
    pub fn common(self, other: Greeting) -> Option<Version> {
        match (self.bitmap, other.bitmap) {
            (Some(one), Some(other)) => [Version::V15, Version::V13]
                .into_iter()
                .find(|version| one & other & (1 << (*version as u8)) != 0),
            _ => Version::of(self.greatest.min(other.greatest)).ok(),
        }
    }
}

/// A switch's description of itself, as far as steering needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Its number.
    pub datapath: u64,
    /// How many tables it has.
    pub tables: u8,
}

/// A step of a bundle (OpenFlow 1.5.1, section 7.3.9): the even ones are requests, each followed by its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleStep(u16);

impl BundleStep {
    /// Opens a bundle.
    pub const OPEN: BundleStep = BundleStep(0);
    /// Applies all of it or nothing.
    pub const COMMIT: BundleStep = BundleStep(4);
    /// Throws it away.
    pub const DISCARD: BundleStep = BundleStep(6);

    /// The answer to this request.
    #[must_use]
    pub fn answer(self) -> BundleStep {
        BundleStep(self.0 | 1)
    }
}

/// A bundle's messages are applied all or none, in their order (`OFPBF_ATOMIC`, `OFPBF_ORDERED`).
const BUNDLE_FLAGS: u16 = 3;

/// A message. Answers that come in several parts say whether more follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The first message of both ends.
    Hello(Greeting),
    /// A refusal.
    Error(SwitchError),
    /// Asks for these bytes back.
    EchoRequest(Vec<u8>),
    /// They are back.
    EchoReply(Vec<u8>),
    /// Asks what the switch is.
    FeaturesRequest,
    /// It says so.
    Features(Features),
    /// Asks for its configuration.
    ConfigRequest,
    /// Its configuration.
    Config {
        /// How it handles fragments.
        flags: u16,
        /// Bytes of a packet that it sends to this controller.
        miss_bytes: u16,
    },
    /// Changes its configuration.
    SetConfig {
        /// As above.
        flags: u16,
        /// As above.
        miss_bytes: u16,
    },
    /// Asks for the status of ports without being asked for it, and for nothing else.
    SetAsync,
    /// A port has changed.
    PortStatus(PortReason, Port),
    /// Changes a flow.
    FlowMod(FlowMod),
    /// Changes a group.
    GroupMod(GroupMod),
    /// Asks for flows.
    FlowsRequest(FlowFilter),
    /// Flows, and whether more follow.
    Flows(Vec<Flow>, bool),
    /// Asks for a group. In OpenFlow 1.3 the question is for all groups, whatever this says.
    GroupsRequest(u32),
    /// Groups, and whether more follow.
    Groups(Vec<Group>, bool),
    /// Asks for all ports.
    PortsRequest,
    /// Ports, and whether more follow.
    Ports(Vec<Port>, bool),
    /// Asks for an answer once all before it is done.
    BarrierRequest,
    /// All before it is done.
    BarrierReply,
    /// A step of a bundle.
    Bundle(u32, BundleStep),
    /// Adds a message, with its transaction number, to a bundle: a flow-mod or a group-mod.
    BundleAdd(u32, u32, Box<Message>),
    /// Another one, by its type; only received.
    Other(u8),
}

// Types of messages.
const HELLO: u8 = 0;
const ERROR: u8 = 1;
const ECHO_REQUEST: u8 = 2;
const ECHO_REPLY: u8 = 3;
const FEATURES_REQUEST: u8 = 5;
const FEATURES_REPLY: u8 = 6;
const CONFIG_REQUEST: u8 = 7;
const CONFIG_REPLY: u8 = 8;
const SET_CONFIG: u8 = 9;
const PORT_STATUS: u8 = 12;
const FLOW_MOD: u8 = 14;
const GROUP_MOD: u8 = 15;
const MULTIPART_REQUEST: u8 = 18;
const MULTIPART_REPLY: u8 = 19;
const BARRIER_REQUEST: u8 = 20;
const BARRIER_REPLY: u8 = 21;
const SET_ASYNC: u8 = 28;
const BUNDLE_CONTROL: u8 = 33;
const BUNDLE_ADD: u8 = 34;

// Types of multipart messages.
const FLOWS: u16 = 1;
const GROUPS: u16 = 7;
const PORTS: u16 = 13;

impl Message {
    fn kind(&self) -> u8 {
        match self {
            Message::Hello(_) => HELLO,
            Message::Error(_) => ERROR,
            Message::EchoRequest(_) => ECHO_REQUEST,
            Message::EchoReply(_) => ECHO_REPLY,
            Message::FeaturesRequest => FEATURES_REQUEST,
            Message::Features(_) => FEATURES_REPLY,
            Message::ConfigRequest => CONFIG_REQUEST,
            Message::Config { .. } => CONFIG_REPLY,
            Message::SetConfig { .. } => SET_CONFIG,
            Message::SetAsync => SET_ASYNC,
            Message::PortStatus(..) => PORT_STATUS,
            Message::FlowMod(_) => FLOW_MOD,
            Message::GroupMod(_) => GROUP_MOD,
            Message::FlowsRequest(_) | Message::GroupsRequest(_) | Message::PortsRequest => {
                MULTIPART_REQUEST
            }
            Message::Flows(..) | Message::Groups(..) | Message::Ports(..) => MULTIPART_REPLY,
            Message::BarrierRequest => BARRIER_REQUEST,
            Message::BarrierReply => BARRIER_REPLY,
            Message::Bundle(..) => BUNDLE_CONTROL,
            Message::BundleAdd(..) => BUNDLE_ADD,
            Message::Other(kind) => *kind,
        }
    }

    /// Its bytes, header included.
    ///
    /// # Errors
    /// [`WireError`]: it is too long, or it does not exist in this version.
    pub fn encode(&self, version: Version, transaction: u32) -> Result<Vec<u8>, WireError> {
        let mut to = Writer::default();
        self.write(version, transaction, &mut to)?;
        Ok(to.into_bytes())
    }

    fn write(&self, version: Version, transaction: u32, to: &mut Writer) -> Result<(), WireError> {
        let start = to.len();
        to.u8(match self {
            Message::Hello(greeting) => greeting.greatest,
            _ => version as u8,
        });
        to.u8(self.kind());
        to.u16(0);
        to.u32(transaction);
        self.write_body(version, to)?;
        to.count(start, 2, "a message")
    }

    fn write_body(&self, version: Version, to: &mut Writer) -> Result<(), WireError> {
        match self {
            Message::Hello(greeting) => {
                if let Some(bitmap) = greeting.bitmap {
                    to.u16(1); // OFPHET_VERSIONBITMAP
                    to.u16(8);
                    to.u32(bitmap);
                }
            }
            Message::Error(error) => {
                to.u16(error.class);
                to.u16(error.code);
                to.bytes(&error.data);
            }
            Message::EchoRequest(bytes) | Message::EchoReply(bytes) => to.bytes(bytes),
            Message::FeaturesRequest
            | Message::ConfigRequest
            | Message::BarrierRequest
            | Message::BarrierReply => {}
            Message::Features(features) => {
                to.u64(features.datapath);
                to.zeros(4);
                to.u8(features.tables);
                to.zeros(11);
            }
            Message::Config { flags, miss_bytes } | Message::SetConfig { flags, miss_bytes } => {
                to.u16(*flags);
                to.u16(*miss_bytes);
            }
            Message::SetAsync => write_async(version, to),
            Message::PortStatus(reason, port) => {
                to.u8(reason.number());
                to.zeros(7);
                port.write(version, to)?;
            }
            Message::FlowMod(change) => change.write(to)?,
            Message::GroupMod(change) => change.write(version, to)?,
            Message::FlowsRequest(filter) => {
                write_multipart(FLOWS, false, to);
                filter.write(to)?;
            }
            Message::Flows(flows, more) => {
                write_multipart(FLOWS, *more, to);
                flows.iter().try_for_each(|flow| flow.write(version, to))?;
            }
            Message::GroupsRequest(group) => {
                write_multipart(GROUPS, false, to);
                if version == Version::V15 {
                    to.u32(*group);
                    to.zeros(4);
                }
            }
            Message::Groups(groups, more) => {
                write_multipart(GROUPS, *more, to);
                groups.iter().try_for_each(|one| one.write(version, to))?;
            }
            Message::PortsRequest => {
                write_multipart(PORTS, false, to);
                if version == Version::V15 {
                    to.u32(port::ANY_PORT);
                    to.zeros(4);
                }
            }
            Message::Ports(ports, more) => {
                write_multipart(PORTS, *more, to);
                ports.iter().try_for_each(|port| port.write(version, to))?;
            }
            Message::Bundle(bundle, step) => {
                only_in_15(version)?;
                to.u32(*bundle);
                to.u16(step.0);
                to.u16(BUNDLE_FLAGS);
            }
            Message::BundleAdd(bundle, transaction, message) => {
                only_in_15(version)?;
                to.u32(*bundle);
                to.zeros(2);
                to.u16(BUNDLE_FLAGS);
                match **message {
                    Message::FlowMod(_) | Message::GroupMod(_) => {
                        message.write(version, *transaction, to)?;
                    }
                    _ => return Err(WireError::NotInVersion("this message in a bundle")),
                }
            }
            Message::Other(_) => {
                return Err(WireError::NotInVersion("a message that was not read"));
            }
        }
        Ok(())
    }

    /// Reads one whole message, and its transaction number. A greeting or an error is read in any version.
    ///
    /// # Errors
    /// [`WireError`]: the bytes are no message.
    pub fn decode(bytes: &[u8]) -> Result<(u32, Message), WireError> {
        let mut from = Reader::new(bytes, "a message");
        let (version, kind, length) = (from.u8()?, from.u8()?, from.u16()?);
        if usize::from(length) != bytes.len() {
            return Err(WireError::Length {
                what: "a message",
                length: length.into(),
            });
        }
        let transaction = from.u32()?;
        let message = match kind {
            HELLO => Message::Hello(Greeting {
                greatest: version,
                bitmap: read_bitmap(from)?,
            }),
            ERROR => Message::Error(SwitchError {
                class: from.u16()?,
                code: from.u16()?,
                data: from.rest().to_vec(),
            }),
            _ => Message::read_body(Version::of(version)?, kind, from)?,
        };
        Ok((transaction, message))
    }

    fn read_body(version: Version, kind: u8, mut from: Reader<'_>) -> Result<Message, WireError> {
        Ok(match kind {
            ECHO_REQUEST => Message::EchoRequest(from.rest().to_vec()),
            ECHO_REPLY => Message::EchoReply(from.rest().to_vec()),
            FEATURES_REQUEST => Message::FeaturesRequest,
            FEATURES_REPLY => {
                let datapath = from.u64()?;
                from.skip(4)?;
                let tables = from.u8()?;
                from.skip(11)?;
                Message::Features(Features { datapath, tables })
            }
            CONFIG_REQUEST => Message::ConfigRequest,
            CONFIG_REPLY => Message::Config {
                flags: from.u16()?,
                miss_bytes: from.u16()?,
            },
            SET_CONFIG => Message::SetConfig {
                flags: from.u16()?,
                miss_bytes: from.u16()?,
            },
            SET_ASYNC => Message::SetAsync,
            PORT_STATUS => {
                let reason = PortReason::of(from.u8()?)?;
                from.skip(7)?;
                Message::PortStatus(reason, Port::read(version, &mut from)?)
            }
            FLOW_MOD => Message::FlowMod(FlowMod::read(from)?),
            GROUP_MOD => Message::GroupMod(GroupMod::read(version, from)?),
            MULTIPART_REQUEST => read_question(version, from)?,
            MULTIPART_REPLY => read_answer(version, from)?,
            BARRIER_REQUEST => Message::BarrierRequest,
            BARRIER_REPLY => Message::BarrierReply,
            BUNDLE_CONTROL if version == Version::V15 => {
                let bundle = from.u32()?;
                Message::Bundle(bundle, BundleStep(from.u16()?))
            }
            BUNDLE_ADD if version == Version::V15 => read_bundle_add(from)?,
            other => Message::Other(other),
        })
    }
}

fn only_in_15(version: Version) -> Result<(), WireError> {
    match version {
        Version::V15 => Ok(()),
        Version::V13 => Err(WireError::NotInVersion("a bundle")),
    }
}

/// The versions that a greeting's elements name.
fn read_bitmap(mut from: Reader<'_>) -> Result<Option<u32>, WireError> {
    let mut bitmap = None;
    while !from.is_empty() {
        let mut element = from.counted(2, 4, 8, "an element of a greeting")?;
        let kind = element.u16()?;
        element.skip(2)?;
        if kind == 1 && element.len() >= 4 * BITMAPS_READ {
            bitmap = Some(element.u32()?);
        }
    }
    Ok(bitmap)
}

/// For any role: no packets, all changes of ports, no removed flows.
fn write_async(version: Version, to: &mut Writer) {
    const PORT_CHANGES: u32 = 0b111;
    match version {
        Version::V13 => {
            for mask in [0, 0, PORT_CHANGES, PORT_CHANGES, 0, 0] {
                to.u32(mask);
            }
        }
        Version::V15 => {
            // Packets, ports, removed flows, roles, tables, requests of others; each as slave, then as master.
            for kind in 0..12 {
                to.u16(kind);
                to.u16(8);
                to.u32(if kind / 2 == 1 { PORT_CHANGES } else { 0 });
            }
        }
    }
}

fn write_multipart(kind: u16, more: bool, to: &mut Writer) {
    to.u16(kind);
    to.u16(more.into());
    to.zeros(4);
}

fn read_question(version: Version, mut from: Reader<'_>) -> Result<Message, WireError> {
    let kind = from.u16()?;
    from.skip(6)?;
    Ok(match kind {
        FLOWS => Message::FlowsRequest(FlowFilter::read(from)?),
        GROUPS if version == Version::V13 => Message::GroupsRequest(ALL_GROUPS),
        GROUPS => Message::GroupsRequest(from.u32()?),
        PORTS => Message::PortsRequest,
        _ => Message::Other(MULTIPART_REQUEST),
    })
}

fn read_answer(version: Version, mut from: Reader<'_>) -> Result<Message, WireError> {
    let kind = from.u16()?;
    let more = from.u16()? & 1 != 0;
    from.skip(4)?;
    Ok(match kind {
        FLOWS => Message::Flows(read_all(from, |one| Flow::read(version, one))?, more),
        GROUPS => Message::Groups(read_all(from, |one| Group::read(version, one))?, more),
        PORTS => Message::Ports(read_all(from, |one| Port::read(version, one))?, more),
        _ => Message::Other(MULTIPART_REPLY),
    })
}

fn read_all<Item>(
    mut from: Reader<'_>,
    read: impl Fn(&mut Reader<'_>) -> Result<Item, WireError>,
) -> Result<Vec<Item>, WireError> {
    let mut items = Vec::new();
    while !from.is_empty() {
        items.push(read(&mut from)?);
    }
    Ok(items)
}

/// A message in a message: only a change of a flow or a group is one, so the nesting is one deep.
fn read_bundle_add(mut from: Reader<'_>) -> Result<Message, WireError> {
    let bundle = from.u32()?;
    from.skip(4)?;
    let mut inner = from.counted(2, HEADER_BYTES, 1, "a message in a bundle")?;
    let (version, kind) = (Version::of(inner.u8()?)?, inner.u8()?);
    inner.skip(2)?;
    let transaction = inner.u32()?;
    let message = match kind {
        FLOW_MOD => Message::FlowMod(FlowMod::read(inner)?),
        GROUP_MOD => Message::GroupMod(GroupMod::read(version, inner)?),
        other => Message::Other(other),
    };
    Ok(Message::BundleAdd(bundle, transaction, Box::new(message)))
}

#[cfg(test)]
mod tests;
