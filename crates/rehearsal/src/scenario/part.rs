//! The ends of a packet as a step describes them: addresses and ports that are exact, in a row, open, or named.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::BTreeMap;

use asterism_config::diagnostic::Diagnostic;
use asterism_function::MacAddress;

use super::words::Word;

/// What names stand for, by the packets that were expected so far.
pub(super) type Names = BTreeMap<String, Named>;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Address(IpAddr),
    Port(u16),
}

/// A part of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part<T> {
    Any,
    Is(T),
    /// From the first to the last, one packet each.
    Row(T, T),
    Name(String),
}

/// An end of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) address: Part<IpAddr>,
    pub(super) port: Part<u16>,
}

/// In what a packet is not as a step describes it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Difference {
    #[error("it is {found}, not {wanted}")]
    Protocol {
        found: &'static str,
        wanted: &'static str,
    },
    #[error("its {what} is {found}, not {wanted}")]
    Value {
        what: String,
        found: String,
        wanted: String,
    },
    #[error("it has no {what}, and {wanted} was expected")]
    Lacks { what: String, wanted: String },
    #[error("${0} stands for a port")]
    NameOfPort(String),
    #[error("${0} stands for an address")]
    NameOfAddress(String),
    #[error("it is about no packet")]
    AboutNothing,
    #[error("in the packet that it is about, {0}")]
    InItsPacket(Box<Difference>),
}

/// Why a packet that a step describes cannot be sent.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unsendable {
    #[error("{source_address} and {destination} are of different versions of IP")]
    Versions {
        source_address: IpAddr,
        destination: IpAddr,
    },
    #[error("`*` cannot be sent")]
    Open,
    #[error("${0} stands for nothing yet")]
    UnknownName(String),
    #[error("${0} stands for a port, not for an address")]
    NameOfPort(String),
    #[error("${0} stands for an address, not for a port")]
    NameOfAddress(String),
}

/// Whether an address is as a part says; what its name stands for then is noted.
pub(super) fn match_address(
    what: &str,
    part: &Part<IpAddr>,
    found: IpAddr,
    names: &mut Names,
) -> Result<(), Difference> {
    let wanted = match part {
        Part::Any => return Ok(()),
        Part::Is(address) => *address,
        Part::Row(first, last) if (*first..=*last).contains(&found) => return Ok(()),
        Part::Row(first, _) => *first,
        Part::Name(name) => match names.get(name) {
            Some(Named::Address(address)) => *address,
            Some(Named::Port(_)) => return Err(Difference::NameOfPort(name.clone())),
            None => {
                names.insert(name.clone(), Named::Address(found));
                return Ok(());
            }
        },
    };
    same(&format!("{what} address"), Some(wanted), Some(found))
}

/// Whether a port is.
pub(super) fn match_port(
    what: &str,
    part: &Part<u16>,
    found: u16,
    names: &mut Names,
) -> Result<(), Difference> {
    let wanted = match part {
        Part::Any => return Ok(()),
        Part::Is(port) => *port,
        Part::Row(first, last) if (*first..=*last).contains(&found) => return Ok(()),
        Part::Row(first, _) => *first,
        Part::Name(name) => match names.get(name) {
            Some(Named::Port(port)) => *port,
            Some(Named::Address(_)) => return Err(Difference::NameOfAddress(name.clone())),
            None => {
                names.insert(name.clone(), Named::Port(found));
                return Ok(());
            }
        },
    };
    same(&format!("{what} port"), Some(wanted), Some(found))
}

/// The address of the packet of this number.
pub(super) fn address(
    part: &Part<IpAddr>,
    number: u64,
    names: &Names,
) -> Result<IpAddr, Unsendable> {
    match part {
        Part::Is(address) => Ok(*address),
        Part::Row(IpAddr::V4(first), _) => {
            let bits = first.to_bits().wrapping_add(number as u32);
            Ok(Ipv4Addr::from_bits(bits).into())
        }
        Part::Row(first, _) => Ok(*first),
        Part::Name(name) => match names.get(name) {
            Some(Named::Address(address)) => Ok(*address),
            Some(Named::Port(_)) => Err(Unsendable::NameOfPort(name.clone())),
            None => Err(Unsendable::UnknownName(name.clone())),
        },
        Part::Any => Err(Unsendable::Open),
    }
}

/// The port of the packet of this number.
pub(super) fn port(part: &Part<u16>, number: u64, names: &Names) -> Result<u16, Unsendable> {
    match part {
        Part::Is(port) => Ok(*port),
        Part::Row(first, _) => Ok(first.wrapping_add(number as u16)),
        Part::Name(name) => match names.get(name) {
            Some(Named::Port(port)) => Ok(*port),
            Some(Named::Address(_)) => Err(Unsendable::NameOfAddress(name.clone())),
            None => Err(Unsendable::UnknownName(name.clone())),
        },
        Part::Any => Err(Unsendable::Open),
    }
}

/// An end, as a word has it.
pub(super) fn end(word: &Word<'_>, has_ports: bool, sent: bool) -> Result<End, Diagnostic> {
    let example = match has_ports {
        true => "write an address and a port, such as 10.0.0.7:5000 or [2001:db8::1]:53",
        false => "write an address without a port, such as 10.0.0.7 or [2001:db8::1]",
    };
    let bad = |what: &str| word.wrong(format!("`{}` {what}", word.text)).help(example);
    let text = word.text;
    let (address, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => (address, rest.strip_prefix(':')),
        None if has_ports => match text.rsplit_once(':') {
            Some((address, port)) => (address, Some(port)),
            None => (text, None),
        },
        None => (text, None),
    };
    if text.starts_with('[') && address.parse::<Ipv6Addr>().is_err() {
        return Err(bad("is no IPv6 address in brackets"));
    }
    let address = match part(address, |text| text.parse::<IpAddr>().ok(), address_row) {
        Some(address) => address,
        None => return Err(bad("has no address")),
    };
    let port = match (port, has_ports) {
        (None, false) => Part::Any,
        (Some(text), true) => match part(text, |text| text.parse::<u16>().ok(), port_row) {
            Some(port) => port,
            None => return Err(bad("has no port")),
        },
        (None, true) => return Err(bad("has no port")),
        (Some(_), false) => return Err(bad("has a port, which this protocol has not")),
    };
    let has_gap = address == Part::Any || (has_ports && port == Part::Any);
    if sent && has_gap {
        return Err(word.wrong("`*` cannot be sent").help(
            "write what is to be sent, or a name such as $port that an `expect` before gave",
        ));
    }
    Ok(End { address, port })
}

fn part<T>(
    text: &str,
    exact: impl Fn(&str) -> Option<T>,
    row: impl Fn(&str, &str) -> Option<(T, T)>,
) -> Option<Part<T>> {
    if text == "*" {
        return Some(Part::Any);
    }
    if let Some(name) = text.strip_prefix('$') {
        let good = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
        let is_name = !name.is_empty() && name.chars().all(good);
        return is_name.then(|| Part::Name(name.to_owned()));
    }
    if let Some((first, last)) = text.split_once("..") {
        return row(first, last).map(|(first, last)| Part::Row(first, last));
    }
    exact(text).map(Part::Is)
}

/// `10.0.0.1..20`: the last number of an IPv4 address goes up.
fn address_row(first: &str, last: &str) -> Option<(IpAddr, IpAddr)> {
    let first: Ipv4Addr = first.parse().ok()?;
    let last: u8 = last.parse().ok()?;
    let [a, b, c, d] = first.octets();
    (last >= d).then(|| (first.into(), Ipv4Addr::new(a, b, c, last).into()))
}

/// `1..20`.
fn port_row(first: &str, last: &str) -> Option<(u16, u16)> {
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some((first, last))
}

/// An Ethernet address.
pub(super) fn mac(text: &str) -> Option<MacAddress> {
    let mut bytes = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut bytes {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(MacAddress(bytes))
}

/// Whether a packet has what is wanted of it, where anything is.
pub(super) fn same<T: PartialEq + core::fmt::Display>(
    what: &str,
    wanted: Option<T>,
    found: Option<T>,
) -> Result<(), Difference> {
    match (wanted, found) {
        (Some(wanted), Some(found)) if wanted != found => Err(Difference::Value {
            what: what.to_owned(),
            found: found.to_string(),
            wanted: wanted.to_string(),
        }),
        (Some(wanted), None) => Err(Difference::Lacks {
            what: what.to_owned(),
            wanted: wanted.to_string(),
        }),
        _ => Ok(()),
    }
}
