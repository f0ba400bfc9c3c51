//! Notices: the alerts of all functions in one form, for logs. Read `own.rs` first.
//!
//! A function with events answers the question [`QUESTION`] of its `report` with [`Notice`]s, one for each entry of its table
//! of alerts, however old, and names their kinds in [`Observable::events`](crate::Observable::events). Every
//! instance has the same table, so each can answer; the caller recognises new notices by those that it has already seen.

use asterism_state::{BadBytes, Reader, Tick, Wire, Writer};

use crate::chain::Chain;
use crate::host::Host;
use crate::own::OwnEvent;
pub use crate::own::{CATEGORY_BYTES_MAX, TEXT_BYTES_MAX};

/// The question of a `report` that notices answer. The highest that a chain hands on.
pub const QUESTION: u32 = (1 << 29) - 1;
/// The questions that a function of so many stages is asked for its notices: one of a function that is no chain.
#[must_use]
pub fn questions(stages: usize) -> Vec<u32> {
    match stages {
        0 => vec![QUESTION],
        stages => (0..stages)
            .filter_map(|stage| Chain::question(stage, QUESTION))
            .collect(),
    }
}

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
    /// Who names it: [`OwnEvent::generator`].
    pub generator: u32,
    /// Its identifier there.
    pub id: u32,
    /// What was found, in words.
    pub text: String,
    /// What class it is of, by a word that other systems use too.
    pub category: String,
    /// From 1, the worst, to 3.
    pub severity: u8,
    /// When it was first found, in seconds of the cluster's time; `None`: before it was looked for.
    pub first: Option<Tick>,
    /// The number of the member that wrote it last.
    pub member: u16,
    /// Who did it.
    pub source: End,
    /// The recipient.
    pub destination: End,
    /// The number of the transport protocol (IANA).
    pub protocol: Option<u8>,
    /// What became of the packet.
    pub outcome: Outcome,
    /// Names the flow that it was found in, alike on all hosts; `None` if it is about more than one.
    pub flow: Option<u64>,
    /// It is about its destination, no matter who is thought to be the source.
    pub is_of_destination: bool,
    /// What else is known, in a few words.
    pub detail: String,
}

/// What makes two notices one: all that tables of alerts are keyed by.
pub type Subject = (u32, u32, End, Option<End>, Option<u8>);

impl Notice {
    /// A notice of an event of this kind, of which nothing else is known yet. `member` is the number of the one that wrote it.
    #[must_use]
    pub fn of(event: &OwnEvent, member: u16) -> Self {
        Self {
            generator: event.generator,
            id: event.id,
            text: event.text.to_owned(),
            category: event.category.to_owned(),
            severity: event.severity,
            member,
            ..Self::default()
        }
    }

    /// Whether it is an event of this kind.
    #[must_use]
    pub fn is(&self, event: &OwnEvent) -> bool {
        let is_named = event.id == 0 || (event.id, event.text) == (self.id, &*self.text);
        let of_kind = (event.generator, event.category, event.severity);
        is_named && of_kind == (self.generator, &*self.category, self.severity)
    }

    /// What makes it another than others. Where it is about more than one flow, the hosts that it was found at do not count.
    #[must_use]
    pub fn subject(&self) -> Subject {
        let is_of_source = !self.is_of_destination && self.source != End::default();
        (
            self.generator,
            self.id,
            match self.is_of_destination {
                true => End::default(),
                false => self.source,
            },
            (self.flow.is_some() || !is_of_source).then_some(self.destination),
            self.protocol,
        )
    }

    /// Appends it.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let mut out = Writer::new(bytes, &[]);
        out.varint(self.generator.into());
        out.varint(self.id.into());
        write_text(&self.text, &mut out);
        // Words, so that a line of them has a bound.
        let category: String = self
            .category
            .chars()
            .filter(|one| !one.is_control())
            .collect();
        write_cut(&category, CATEGORY_BYTES_MAX, &mut out);
        out.u8(self.severity);
        write_option(self.first, &mut out, |first, out| out.u32(first));
        out.u16(self.member);
        for end in [self.source, self.destination] {
            write_option(end.host, &mut out, |host, out| host.encode(out));
            write_option(end.port, &mut out, |port, out| out.u16(port));
        }
        write_option(self.protocol, &mut out, |protocol, out| out.u8(protocol));
        out.u8(self.outcome as u8);
        write_option(self.flow, &mut out, |flow, out| out.u64(flow));
        out.u8(self.is_of_destination.into());
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
            category: read_text(input)?,
            severity: input.u8()?,
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
            is_of_destination: match input.u8()? {
                0 => false,
                1 => true,
                _ => return Err(BadBytes),
            },
            detail: read_text(input)?,
        })
    }
}

/// Writes what may be absent: a byte that says whether it is there, then what it is.
pub fn write_option<T>(value: Option<T>, out: &mut Writer<'_>, write: impl Fn(T, &mut Writer<'_>)) {
    out.u8(value.is_some().into());
    if let Some(value) = value {
        write(value, out);
    }
}

/// What [`write_option`] wrote.
///
/// # Errors
/// [`BadBytes`] where it is anything else.
pub fn read_option<'a, T>(
    input: &mut Reader<'a>,
    read: impl Fn(&mut Reader<'a>) -> Result<T, BadBytes>,
) -> Result<Option<T>, BadBytes> {
    match input.u8()? {
        0 => Ok(None),
        1 => read(input).map(Some),
        _ => Err(BadBytes),
    }
}

/// Writes at most [`TEXT_BYTES_MAX`] bytes of a text.
pub fn write_text(text: &str, out: &mut Writer<'_>) {
    write_cut(text, TEXT_BYTES_MAX, out);
}

fn write_cut(text: &str, bytes_max: usize, out: &mut Writer<'_>) {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    out.varint(end as u64);
    out.raw(&text.as_bytes()[..end]);
}

/// What [`write_text`] wrote.
///
/// # Errors
/// [`BadBytes`] where it is longer, or no text.
pub fn read_text(input: &mut Reader<'_>) -> Result<String, BadBytes> {
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

    const SEEN: OwnEvent = OwnEvent::new(7, "Something was seen", "Misc activity", 3);

    #[test]
    fn notices_come_back_and_nothing_else_does() {
        let long = "é".repeat(TEXT_BYTES_MAX);
        let all = [
            Notice::of(&SEEN, 1),
            Notice {
                generator: 1,
                id: u32::MAX,
                text: "a \"signature\"\n".into(),
                category: "Misc Attack".into(),
                severity: 2,
                first: Some(7),
                member: 64,
                source: End::endpoint((Ipv4Addr::LOCALHOST.into(), 1_025)),
                destination: End::host(Ipv6Addr::LOCALHOST.into()),
                protocol: Some(6),
                outcome: Outcome::Dropped,
                flow: Some(u64::MAX),
                is_of_destination: true,
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
    fn every_stage_of_the_longest_chain_can_be_asked() {
        use crate::chain::STAGES_MAX;
        assert_eq!(questions(0), [QUESTION]);
        assert_eq!(questions(STAGES_MAX).len(), STAGES_MAX);
    }

    #[test]
    fn a_notice_is_of_its_kind_and_of_no_other() {
        let seen = Notice::of(&SEEN, 1);
        assert!(seen.is(&SEEN));
        for other in [
            OwnEvent { id: 8, ..SEEN },
            OwnEvent {
                generator: 900,
                ..SEEN
            },
            OwnEvent {
                severity: 1,
                ..SEEN
            },
        ] {
            assert!(!seen.is(&other), "{other:?}");
        }
        // Of a kind that has many identifiers, the words are each one's own.
        let any = OwnEvent {
            id: 0,
            text: "whatever somebody wrote",
            ..SEEN
        };
        assert!(seen.is(&any));
    }

    #[test]
    fn which_a_scan_was_found_at_makes_no_other_notice_of_it() {
        let scan = |target: u16| Notice {
            source: End::host(Ipv4Addr::LOCALHOST.into()),
            destination: End::endpoint((Ipv4Addr::BROADCAST.into(), target)),
            ..Notice::of(&SEEN, 1)
        };
        assert_eq!(scan(1).subject(), scan(2).subject());
        let of_flow = |target| Notice {
            flow: Some(1),
            ..scan(target)
        };
        assert_ne!(of_flow(1).subject(), of_flow(2).subject());
        // A flood is about a service, no matter who is thought to send it.
        let flood = |source: Ipv4Addr, target| Notice {
            source: End::host(source.into()),
            is_of_destination: true,
            ..scan(target)
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
