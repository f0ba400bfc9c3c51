//! What functions find, in one form, for whoever writes it down. Imports `host`.
//!
//! A function that raises alerts answers the question [`QUESTION`] of its `report` with [`Notice`]s, one for each entry of its table
//! of alerts, however old. Every instance has the same table, so each can answer; who keeps what was told already knows what is new.

use asterism_function::{BadBytes, Reader, Tick, Wire, Writer};

use crate::host::Host;

/// The question of a `report` that notices answer. The highest that a chain hands on, which no interval of the monitor reaches.
pub const QUESTION: u32 = (1 << 29) - 1;
/// The generator of signatures that the operator wrote, by their own identifiers.
pub const OPERATOR: u32 = 1;
/// The generator of what functions find by themselves: see [`KINDS`].
pub const BUILT_IN: u32 = 900;
/// Bytes of a notice's texts at most, each; longer ones are cut.
pub const TEXT_BYTES_MAX: usize = 256;

/// What functions find by themselves. Identifiers never change their meaning, and none is used again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    /// The identifier, with the generator [`BUILT_IN`].
    pub id: u32,
    /// What it is.
    pub text: &'static str,
    /// What class it is of, by a word that other systems use too.
    pub category: &'static str,
    /// From 1, the worst, to 3.
    pub severity: u8,
}

/// All kinds, by their identifiers.
pub const KINDS: [Kind; 15] = [
    kind(1, "TCP port scan", SCAN, 3),
    kind(2, "TCP host sweep", SCAN, 3),
    kind(3, "UDP port scan", SCAN, 3),
    kind(4, "UDP host sweep", SCAN, 3),
    kind(5, "ICMP sweep", SCAN, 3),
    kind(10, "Destination port over its volume", DENIAL, 2),
    kind(FLOOD, "SYN flood", DENIAL, 1),
    kind(20, "Stream in more pieces than are kept", UNUSUAL, 2),
    kind(30, "Host sends to too many others", UNUSUAL, 2),
    kind(31, "Too many others send to host", DENIAL, 2),
    kind(40, "Flow allowed by a firewall rule", MISC, 3),
    kind(41, "Flow denied by a firewall rule", UNUSUAL, 2),
    kind(42, "Source has too many half-open connections", DENIAL, 2),
    kind(43, "Too many half-open connections: SYN flood", DENIAL, 1),
    kind(
        44,
        "Too many half-open connections to a host: SYN flood",
        DENIAL,
        1,
    ),
];

/// The kind of a SYN flood, which is about a service even where its source is known.
pub(crate) const FLOOD: u32 = 11;

const SCAN: &str = "Detection of a Network Scan";
const DENIAL: &str = "Detection of a Denial of Service Attack";
const UNUSUAL: &str = "Potentially Bad Traffic";
const MISC: &str = "Misc activity";

const fn kind(id: u32, text: &'static str, category: &'static str, severity: u8) -> Kind {
    Kind {
        id,
        text,
        category,
        severity,
    }
}

/// The kind of an operator's signature, whose text is its own.
const WRITTEN: Kind = kind(0, "", "Misc Attack", 2);

/// What became of the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Outcome {
    /// It passed.
    #[default]
    Passed,
    /// It was dropped.
    Dropped,
    /// What decided is not known any more.
    Unknown,
}

/// One end of what a notice is about, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct End {
    /// The address.
    pub host: Option<Host>,
    /// The port.
    pub port: Option<u16>,
}

impl End {
    /// An end without a port.
    #[must_use]
    pub const fn host(host: Host) -> Self {
        Self {
            host: Some(host),
            port: None,
        }
    }
    /// An end with a port.
    #[must_use]
    pub const fn endpoint((host, port): (Host, u16)) -> Self {
        Self {
            host: Some(host),
            port: Some(port),
        }
    }
}

/// Something that a function found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Notice {
    /// Who names it: [`OPERATOR`] or [`BUILT_IN`].
    pub generator: u32,
    /// Its identifier there.
    pub id: u32,
    /// What a signature of the operator's is called; else empty.
    pub text: String,
    /// When it was first found, in seconds of the cluster's time; `None`: before it was looked for.
    pub first: Option<Tick>,
    /// The number of the member that wrote it last.
    pub member: u16,
    /// Who did it.
    pub source: End,
    /// To whom.
    pub destination: End,
    /// The number of the transport protocol (IANA).
    pub protocol: Option<u8>,
    /// What became of the packet.
    pub outcome: Outcome,
    /// Names the flow that it was found in, alike on all hosts; `None` if it is about more than one.
    pub flow: Option<u64>,
    /// What else is known, in a few words.
    pub detail: String,
}

/// What makes two notices one: all that tables of alerts are keyed by.
pub type Subject = (u32, u32, End, Option<End>, Option<u8>);

impl Notice {
    /// A notice of what a function finds by itself.
    #[must_use]
    pub fn built_in(id: u32, member: u16) -> Self {
        Self {
            generator: BUILT_IN,
            id,
            member,
            ..Self::default()
        }
    }

    /// Its kind; `None` if this program does not know it.
    #[must_use]
    pub fn kind(&self) -> Option<&'static Kind> {
        match self.generator {
            OPERATOR => Some(&WRITTEN),
            _ => KINDS.iter().find(|kind| kind.id == self.id),
        }
    }

    /// What makes it another than others. Where it is about more than one flow, whom it was found at does not count.
    #[must_use]
    pub fn subject(&self) -> Subject {
        let is_flood = (self.generator, self.id) == (BUILT_IN, FLOOD);
        let of_source = self.source != End::default() && !is_flood;
        let destination = (self.flow.is_some() || !of_source).then_some(self.destination);
        (
            self.generator,
            self.id,
            if is_flood {
                End::default()
            } else {
                self.source
            },
            destination,
            self.protocol,
        )
    }

    /// Appends it.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let mut out = Writer::new(bytes, &[]);
        out.varint(self.generator.into());
        out.varint(self.id.into());
        write_text(&self.text, &mut out);
        write_option(self.first, &mut out, |first, out| out.u32(first));
        out.u16(self.member);
        for end in [self.source, self.destination] {
            write_option(end.host, &mut out, |host, out| host.encode(out));
            write_option(end.port, &mut out, |port, out| out.u16(port));
        }
        write_option(self.protocol, &mut out, |protocol, out| out.u8(protocol));
        out.u8(self.outcome as u8);
        write_option(self.flow, &mut out, |flow, out| out.u64(flow));
        write_text(&self.detail, &mut out);
    }

    /// Calls `each` for all notices that were written one after the other; false if something else follows.
    pub fn read_all(bytes: &[u8], mut each: impl FnMut(Self)) -> bool {
        let mut input = Reader::new(bytes, &[]);
        while !input.is_empty() {
            match Self::read(&mut input) {
                Ok(notice) => each(notice),
                Err(BadBytes) => return false,
            }
        }
        true
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let narrow = |wide| u32::try_from(wide).map_err(|_| BadBytes);
        let end = |input: &mut Reader<'_>| {
            Ok(End {
                host: read_option(input, Host::decode)?,
                port: read_option(input, Reader::u16)?,
            })
        };
        Ok(Self {
            generator: narrow(input.varint()?)?,
            id: narrow(input.varint()?)?,
            text: read_text(input)?,
            first: read_option(input, Reader::u32)?,
            member: input.u16()?,
            source: end(input)?,
            destination: end(input)?,
            protocol: read_option(input, Reader::u8)?,
            outcome: match input.u8()? {
                0 => Outcome::Passed,
                1 => Outcome::Dropped,
                2 => Outcome::Unknown,
                _ => return Err(BadBytes),
            },
            flow: read_option(input, Reader::u64)?,
            detail: read_text(input)?,
        })
    }
}

pub(crate) fn write_option<T>(
    value: Option<T>,
    out: &mut Writer<'_>,
    write: impl Fn(T, &mut Writer<'_>),
) {
    out.u8(value.is_some().into());
    if let Some(value) = value {
        write(value, out);
    }
}

pub(crate) fn read_option<'a, T>(
    input: &mut Reader<'a>,
    read: impl Fn(&mut Reader<'a>) -> Result<T, BadBytes>,
) -> Result<Option<T>, BadBytes> {
    match input.u8()? {
        0 => Ok(None),
        1 => read(input).map(Some),
        _ => Err(BadBytes),
    }
}

/// At most [`TEXT_BYTES_MAX`] bytes of a text.
pub(crate) fn write_text(text: &str, out: &mut Writer<'_>) {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    out.varint(end as u64);
    out.raw(&text.as_bytes()[..end]);
}

/// What [`write_text`] wrote.
pub(crate) fn read_text(input: &mut Reader<'_>) -> Result<String, BadBytes> {
    let length = usize::try_from(input.varint()?).map_err(|_| BadBytes)?;
    if length > TEXT_BYTES_MAX {
        return Err(BadBytes);
    }
    let text = core::str::from_utf8(input.raw(length)?).map_err(|_| BadBytes)?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn notices_come_back_and_nothing_else_does() {
        let long = "é".repeat(TEXT_BYTES_MAX);
        let all = [
            Notice::built_in(10, 1),
            Notice {
                generator: OPERATOR,
                id: u32::MAX,
                text: "a \"signature\"\n".into(),
                first: Some(7),
                member: 64,
                source: End::endpoint((Ipv4Addr::LOCALHOST.into(), 1_025)),
                destination: End::host(Ipv6Addr::LOCALHOST.into()),
                protocol: Some(6),
                outcome: Outcome::Dropped,
                flow: Some(u64::MAX),
                detail: long.clone(),
            },
        ];
        let mut bytes = Vec::new();
        all.iter().for_each(|notice| notice.write(&mut bytes));
        let mut back = Vec::new();
        assert!(Notice::read_all(&bytes, |notice| back.push(notice)));
        assert_eq!(back[0], all[0]);
        assert_eq!(back[1].detail, long[..TEXT_BYTES_MAX]);
        back[1].detail = long;
        assert_eq!(back[1], all[1]);
        let first = {
            let mut bytes = Vec::new();
            all[0].write(&mut bytes);
            bytes.len()
        };
        for length in 1..bytes.len() {
            let whole = Notice::read_all(&bytes[..length], |_| {});
            assert_eq!(whole, length == first, "{length} bytes");
        }
    }

    #[test]
    fn identifiers_are_in_order_and_each_is_of_one_kind() {
        assert!(KINDS.windows(2).all(|pair| pair[0].id < pair[1].id));
        assert!(
            KINDS
                .iter()
                .all(|kind| (1..=3).contains(&kind.severity) && kind.text.len() <= TEXT_BYTES_MAX)
        );
        assert_eq!(Notice::built_in(6, 1).kind(), None);
    }

    #[test]
    fn whom_a_scan_was_found_at_makes_no_other_notice_of_it() {
        let scan = |target: u16| Notice {
            source: End::host(Ipv4Addr::LOCALHOST.into()),
            destination: End::endpoint((Ipv4Addr::BROADCAST.into(), target)),
            ..Notice::built_in(1, 1)
        };
        assert_eq!(scan(1).subject(), scan(2).subject());
        let of_flow = |target| Notice {
            flow: Some(1),
            ..scan(target)
        };
        assert_ne!(of_flow(1).subject(), of_flow(2).subject());
        // A flood is about a service, whoever is thought to send it.
        let flood = |source: Ipv4Addr, target| Notice {
            source: End::host(source.into()),
            ..Notice {
                id: FLOOD,
                ..scan(target)
            }
        };
        let (one, other) = (Ipv4Addr::LOCALHOST, Ipv4Addr::BROADCAST);
        assert_ne!(flood(one, 1).subject(), flood(one, 2).subject());
        assert_eq!(flood(one, 1).subject(), flood(other, 1).subject());
        // Of a port's volume the destination is all that there is.
        let volume = |target| Notice {
            source: End::default(),
            ..scan(target)
        };
        assert_ne!(volume(1).subject(), volume(2).subject());
    }
}
