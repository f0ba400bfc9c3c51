//! What a rule file's words say: networks, ports and times, or what to write instead. Imports `flow`.

use asterism_function::Host;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::BLOCK_SECONDS_MAX;

/// The first and the last address of a network.
pub(super) fn network(text: &str) -> Result<(Host, Host), (String, String)> {
    let (address_text, length_text) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let Ok(address) = address_text.parse::<IpAddr>() else {
        let wrong = format!("`{text}` is no network");
        let instead = if text.chars().any(|letter| letter.is_ascii_digit()) {
            "write an address or a prefix, such as 192.0.2.7, 10.0.0.0/8 or 2001:db8::/32"
                .to_owned()
        } else {
            format!("write `any`, a prefix such as 10.0.0.0/8, or `@{text}` for a set")
        };
        return Err((wrong, instead));
    };
    let longest: u32 = if address.is_ipv4() { 32 } else { 128 };
    let length = match length_text {
        None => longest,
        Some(length) => match length.parse::<u32>() {
            Ok(length) if length <= longest => length,
            _ => {
                return Err((
                    format!("`/{length}` is no length of such a prefix"),
                    format!(
                        "write 0 to {longest}, such as {address_text}/{}",
                        longest / 4 * 3
                    ),
                ));
            }
        },
    };
    let (first, last): (IpAddr, IpAddr) = match address {
        IpAddr::V4(address) => {
            let host = u32::MAX.checked_shr(length).unwrap_or(0);
            let bits = address.to_bits();
            let first = Ipv4Addr::from_bits(bits & !host);
            (first.into(), Ipv4Addr::from_bits(bits | host).into())
        }
        IpAddr::V6(address) => {
            let host = u128::MAX.checked_shr(length).unwrap_or(0);
            let bits = address.to_bits();
            let first = Ipv6Addr::from_bits(bits & !host);
            (first.into(), Ipv6Addr::from_bits(bits | host).into())
        }
    };
    if first != address {
        return Err((
            format!("`{text}` has bits behind its length"),
            format!("write {first}/{length} for the network, or {address} for the one host"),
        ));
    }
    Ok((first.into(), last.into()))
}

/// The first and the last port of a range.
pub(super) fn port_range(text: &str) -> Result<(u16, u16), (String, String)> {
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

/// The seconds of a duration, or what to write instead.
pub(super) fn seconds(text: &str) -> Result<u32, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "" if !digits.is_empty() && digits.chars().all(|digit| digit.is_ascii_digit()) => {
            return Err(format!("write its unit, such as {text}s"));
        }
        _ => return Err("write a time such as 30s, 10m, 2h or 1d".to_owned()),
    };
    let count = digits.parse::<u64>().ok();
    let time = count.and_then(|count| count.checked_mul(unit));
    match time {
        Some(time @ 1..=BLOCK_SECONDS_MAX) => Ok(time as u32),
        _ => Err("write 1s to 7d".to_owned()),
    }
}

/// The known word nearest to what was written, if it is near enough to be meant.
pub(super) fn nearest<'k>(written: &str, known: &[&'k str]) -> Option<&'k str> {
    let written: Vec<char> = written.to_lowercase().chars().take(64).collect();
    known
        .iter()
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
