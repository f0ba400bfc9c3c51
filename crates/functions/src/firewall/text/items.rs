//! What a rule file's words say: networks, ports and times, or what to write instead.

use asterism_function::{Host, IpPrefix, IpPrefixError};
use core::fmt;
use core::net::Ipv4Addr;

use super::{BLOCK_SECONDS_MAX, hints};
use crate::firewall::rules::NO_ADDRESS;

/// The addresses of a network, none of an IPv4-mapped one, of its own IP version alone, as ranges.
pub(super) fn network(text: &str) -> Result<Vec<(Host, Host)>, (String, String)> {
    let error = match text.parse::<IpPrefix>() {
        Ok(network) => return Ok(network.ranges().collect()),
        Err(IpPrefixError::Mapped { .. }) => return Ok(vec![NO_ADDRESS]),
        Err(error) => error,
    };
    let (address, length) = text.split_once('/').unwrap_or((text, ""));
    if let Some(mistake) = hints::network(text) {
        return Err(mistake);
    }
    Err(match error {
        IpPrefixError::Address => {
            let instead = if text.chars().any(|letter| letter.is_ascii_digit()) {
                "write an address or a prefix, such as 192.0.2.7, 10.0.0.0/8 or 2001:db8::/32"
                    .to_owned()
            } else {
                format!("write `any`, a prefix such as 10.0.0.0/8, or `@{text}` for a set")
            };
            (format!("`{text}` is no network"), instead)
        }
        IpPrefixError::Length { most } => (
            format!("`/{length}` is no length of such a prefix"),
            match of_mask(length) {
                Some(length) => format!("write {address}/{length}"),
                None => format!("write 0 to {most}, such as {address}/{}", most / 4 * 3),
            },
        ),
        IpPrefixError::HostBits { network, host } => (
            format!("`{text}` has bits behind its length"),
            format!(
                "write {network} for the network, or {} for the one host",
                host.address()
            ),
        ),
        IpPrefixError::Mapped { ipv4 } => (
            format!("`{text}` holds no address that a packet has"),
            format!("write {ipv4}"),
        ),
    })
}

/// The prefix length of an IPv4 mask such as 255.255.0.0.
fn of_mask(text: &str) -> Option<u32> {
    let mask = text.parse::<Ipv4Addr>().ok()?.to_bits();
    (mask.leading_ones() + mask.trailing_zeros() >= 32).then(|| mask.leading_ones())
}

/// The number of a type of queries, which open flows; of ICMPv6 or ICMP.
pub(super) fn icmp_type(text: &str, is_icmpv6: bool) -> Result<u8, (String, String)> {
    let queries: &[(u8, &str)] = match is_icmpv6 {
        true => &[(128, "echo-request")],
        false => &[
            (8, "echo-request"),
            (13, "timestamp-request"),
            (15, "information-request"),
            (17, "address-mask-request"),
        ],
    };
    let known = queries
        .iter()
        .find(|(number, name)| *name == text || text.parse() == Ok(*number));
    if let Some((number, _)) = known {
        return Ok(*number);
    }
    let which = match is_icmpv6 {
        true => "write 128 or `echo-request`",
        false => "write 8 or `echo-request`, 13, 15 or 17",
    };
    if text.parse::<u8>().is_err() && !text.ends_with("-reply") && !hints::is_icmp_error(text) {
        return Err((format!("`{text}` is no type of a query"), which.to_owned()));
    }
    Err((
        format!("no flow opens with ICMP of type `{text}`, so no rule is asked about it"),
        format!("leave it out: errors and replies pass where the flow is known; {which}"),
    ))
}

/// The first and the last port of a range.
pub(super) fn port_range(text: &str) -> Result<(u16, u16), (String, String)> {
    if let Some(mistake) = hints::port(text) {
        return Err(mistake);
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| {
        text.parse::<u16>().map_err(|_| {
            let instead = match nearest(text, &["http", "https", "ssh", "dns", "smtp"]) {
                Some("http") => "write 80".to_owned(),
                Some("https") => "write 443".to_owned(),
                Some("ssh") => "write 22".to_owned(),
                Some("dns") => "write 53".to_owned(),
                Some("smtp") => "write 25".to_owned(),
                _ => "write 0 to 65535, or a range such as 8000-8099".to_owned(),
            };
            (format!("`{text}` is no port"), instead)
        })
    };
    let (first, last) = (port(first)?, port(last)?);
    if first > last {
        return Err((
            format!("`{text}` ends before it begins"),
            format!("write {last}-{first}"),
        ));
    }
    Ok((first, last))
}

/// Why a text is no time to block for, worded as what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SecondsError {
    /// This number has no unit.
    NoUnit(String),
    /// It does not end with a unit that is known.
    NoTime,
    /// It is no number of seconds from 1 to [`BLOCK_SECONDS_MAX`].
    OutOfBounds,
}

impl fmt::Display for SecondsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecondsError::NoUnit(number) => write!(f, "write its unit, such as {number}s"),
            SecondsError::NoTime => f.write_str("write a time such as 30s, 10m, 2h or 1d"),
            SecondsError::OutOfBounds => f.write_str("write 1s to 7d"),
        }
    }
}

/// The seconds of a duration.
pub(super) fn seconds(text: &str) -> Result<u32, SecondsError> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "" if !digits.is_empty() && digits.chars().all(|digit| digit.is_ascii_digit()) => {
            return Err(SecondsError::NoUnit(text.to_owned()));
        }
        _ => return Err(SecondsError::NoTime),
    };
    let count = digits.parse::<u64>().ok();
    let time = count.and_then(|count| count.checked_mul(unit));
    match time {
        Some(time @ 1..=BLOCK_SECONDS_MAX) => Ok(time as u32),
        _ => Err(SecondsError::OutOfBounds),
    }
}

/// The known word nearest to what was written, if it is near enough to be meant.
pub(super) fn nearest<'k>(written: &str, known: &[&'k str]) -> Option<&'k str> {
    let written: Vec<char> = written.to_lowercase().chars().take(64).collect();
    let could_be =
        |word: &&&str| word.len().abs_diff(written.len()) <= word.len().max(written.len()) / 3;
    known
        .iter()
        .filter(could_be)
        .map(|word| (distance(&written, word), *word))
        .filter(|(distance, word)| *distance <= word.len().max(written.len()) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// Letters to insert, leave out, replace or swap with their neighbour.
fn distance(written: &[char], word: &str) -> usize {
    let word: Vec<char> = word.chars().collect();
    let mut rows: Vec<Vec<usize>> = vec![(0..=word.len()).collect()];
    for (i, letter) in written.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, other) in word.iter().enumerate() {
            let mut least = (rows[i][j] + usize::from(letter != other))
                .min(rows[i][j + 1] + 1)
                .min(row[j] + 1);
            if i > 0 && j > 0 && *letter == word[j - 1] && written[i - 1] == *other {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[written.len()][word.len()]
}
