//! Values in the configuration: durations, sizes, rates and names here, addresses and networks in `network.rs`, each with an error
//! that suggests a correction.

use core::time::Duration;

/// What is wrong with a value, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wrong}: {instead}")]
pub struct Mistake {
    /// What is wrong, to stand at the caret.
    pub wrong: String,
    /// What to write instead.
    pub instead: String,
}

impl Mistake {
    /// A mistake.
    pub fn new(wrong: impl Into<String>, instead: impl Into<String>) -> Mistake {
        Mistake {
            wrong: wrong.into(),
            instead: instead.into(),
        }
    }
}

const DURATION_UNITS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

const SIZE_UNITS: [(&str, u64); 4] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// Bytes as text, and as hexadecimal numbers between bars: `GET /|0d 0a|`. A bar itself is `|7c|`.
///
/// # Errors
/// Fewer or more bytes than `bounds`, a bar without its second, or something else than pairs of hexadecimal digits between two.
pub fn bytes(text: &str, bounds: (usize, usize)) -> Result<Vec<u8>, Mistake> {
    let instead = r#"write pairs of hexadecimal digits between two bars, such as "GET /|0d 0a|"; a bar itself is |7c|"#;
    let parts: Vec<&str> = text.split('|').collect();
    if parts.len().is_multiple_of(2) {
        return Err(Mistake::new("a bar has no second one", instead));
    }
    let mut bytes = Vec::with_capacity(text.len());
    for (place, part) in parts.into_iter().enumerate() {
        if place.is_multiple_of(2) {
            bytes.extend_from_slice(part.as_bytes());
            continue;
        }
        let digits: Vec<u8> = part.bytes().filter(|byte| *byte != b' ').collect();
        if digits.is_empty() || !digits.len().is_multiple_of(2) {
            return Err(Mistake::new("these are no pairs of digits", instead));
        }
        for pair in digits.chunks(2) {
            let value = core::str::from_utf8(pair)
                .ok()
                .filter(|pair| pair.bytes().all(|byte| byte.is_ascii_hexdigit()))
                .and_then(|pair| u8::from_str_radix(pair, 16).ok());
            match value {
                Some(value) => bytes.push(value),
                None => return Err(Mistake::new("these are no hexadecimal digits", instead)),
            }
        }
    }
    let (least, most) = bounds;
    if !(least..=most).contains(&bytes.len()) {
        return Err(Mistake::new(
            format!("these are {} bytes", bytes.len()),
            format!("write {least} to {most} bytes"),
        ));
    }
    Ok(bytes)
}

/// A duration: `20ms`, `4m`, `2h4m`.
///
/// # Errors
/// No number, no unit, an unknown unit, or more than 584 years.
pub fn duration(text: &str) -> Result<Duration, Mistake> {
    let instead = r#"write a number and its unit, such as "20ms", "4m" or "2h4m"; units are ns, us, ms, s, m, h, d"#;
    let mut rest = text.trim();
    let mut total: u64 = 0;
    if rest.is_empty() {
        return Err(Mistake::new("this duration is empty", instead));
    }
    while !rest.is_empty() {
        let (number, after) = split_number(rest);
        if number.is_empty() {
            return Err(Mistake::new("this is not a duration", instead));
        }
        let (unit, next) = split_unit(after.trim_start());
        let Some((_, unit_ns)) = DURATION_UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(match unit {
                "" if next.starts_with(['.', ',']) => Mistake::new(
                    "a duration has whole numbers only",
                    format!("write it in a smaller unit; {instead}"),
                ),
                "" => Mistake::new(
                    format!("`{number}` has no unit"),
                    format!("write \"{number}ms\" or \"{number}s\""),
                ),
                _ => Mistake::new(format!("`{unit}` is no unit of time"), instead),
            });
        };
        let part: Option<u64> = number
            .parse::<u64>()
            .ok()
            .and_then(|n| n.checked_mul(*unit_ns));
        total = part
            .and_then(|part| total.checked_add(part))
            .ok_or_else(|| Mistake::new("this duration is too long to be held", instead))?;
        rest = next.trim_start();
    }
    Ok(Duration::from_nanos(total))
}

/// A size in bytes: `1400B`, `8MiB`.
///
/// # Errors
/// No number, no unit, an unknown unit, or more than 2⁶⁴ bytes.
pub fn size(text: &str) -> Result<u64, Mistake> {
    let instead = r#"write a whole number and its unit, such as "1400B" or "8MiB"; units are B, KiB, MiB, GiB"#;
    let (number, after) = split_number(text.trim());
    let unit = after.trim();
    if number.is_empty() {
        return Err(Mistake::new("this is not a size", instead));
    }
    let Some((_, unit_bytes)) = SIZE_UNITS.iter().find(|(name, _)| *name == unit) else {
        let wrong = if unit.is_empty() {
            format!("`{number}` has no unit")
        } else {
            format!("`{unit}` is no unit of size")
        };
        let similar = SIZE_UNITS.iter().find(|(name, _)| {
            name.to_lowercase()
                .starts_with(&unit.to_lowercase().replace('b', ""))
        });
        return Err(Mistake::new(
            wrong,
            match similar {
                Some((name, _)) => {
                    format!("write \"{number}{name}\"; units are B, KiB (1,024 B), MiB, GiB")
                }
                None => instead.to_owned(),
            },
        ));
    };
    let bytes = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(*unit_bytes));
    bytes.ok_or_else(|| Mistake::new("this size is too large to be held", instead))
}

/// A rate per second: `100/s`.
///
/// # Errors
/// Not a whole number followed by `/s`.
pub fn rate(text: &str) -> Result<u64, Mistake> {
    let instead = "write how many a second, such as \"100/s\"";
    let (number, unit) = split_number(text.trim());
    match (number.parse(), unit.trim()) {
        (Ok(rate), "/s") => Ok(rate),
        (Ok(rate), "") => Err(Mistake::new(
            format!("`{rate}` has no time unit"),
            format!("write \"{rate}/s\""),
        )),
        (Ok(_), "/m" | "/min" | "/h") => Err(Mistake::new("rates are per second", instead)),
        _ => Err(Mistake::new("this is not a rate", instead)),
    }
}

/// A name of a host or cluster: 1 to 63 of a to z, 0 to 9 and hyphens, with a letter or digit at both ends.
///
/// # Errors
/// Anything else.
pub fn name(text: &str) -> Result<String, Mistake> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = text.bytes().next().is_some_and(good) && text.bytes().last().is_some_and(good);
    if ends && text.len() <= 63 && text.bytes().all(|byte| good(byte) || byte == b'-') {
        return Ok(text.to_owned());
    }
    let kept: String = text
        .to_lowercase()
        .chars()
        .map(|c| {
            if c.is_ascii_lowercase() || c.is_ascii_digit() {
                c
            } else {
                '-'
            }
        })
        .take(63)
        .collect();
    let kept = kept.trim_matches('-');
    let rule = "names have 1 to 63 of a-z, 0-9 and hyphens, with no hyphen at either end";
    Err(Mistake::new(
        if text.is_empty() {
            "this name is empty"
        } else {
            "this is not a name"
        },
        if kept.is_empty() {
            rule.to_owned()
        } else {
            format!("write \"{kept}\": {rule}")
        },
    ))
}

/// A duration in the words of the configuration.
#[must_use]
pub fn show_duration(duration: Duration) -> String {
    let mut rest = duration.as_nanos();
    let mut text = String::new();
    for (unit, unit_ns) in DURATION_UNITS.iter().rev() {
        let unit_ns = u128::from(*unit_ns);
        if rest >= unit_ns {
            text.push_str(&format!("{}{unit}", rest / unit_ns));
            rest %= unit_ns;
        }
    }
    if text.is_empty() {
        "0s".to_owned()
    } else {
        text
    }
}

/// A size in the words of the configuration.
#[must_use]
pub fn show_size(bytes: u64) -> String {
    let (unit, unit_bytes) = SIZE_UNITS
        .iter()
        .rev()
        .find(|(_, unit_bytes)| bytes >= *unit_bytes && bytes.is_multiple_of(*unit_bytes))
        .unwrap_or(&SIZE_UNITS[0]);
    format!("{}{unit}", bytes / unit_bytes)
}

/// A number with a comma between groups of three digits.
#[must_use]
pub fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn split_number(text: &str) -> (&str, &str) {
    text.split_at(
        text.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len()),
    )
}

fn split_unit(text: &str) -> (&str, &str) {
    text.split_at(
        text.find(|c: char| !c.is_alphabetic())
            .unwrap_or(text.len()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, ns) in [
            ("20ms", 20_000_000),
            ("4m", 240_000_000_000),
            ("2h4m", 7_440_000_000_000),
            ("0s", 0),
            ("1s 5ms", 1_005_000_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
        for (text, wrong) in [
            ("", "empty"),
            ("20", "has no unit"),
            ("fast", "not a duration"),
            ("20 parsecs", "no unit of time"),
            ("1.5s", "whole numbers"),
            ("-1s", "not a duration"),
            ("99999999999999999999s", "too long"),
            ("600000000h", "too long"),
            ("20µs", "no unit of time"),
        ] {
            let mistake = duration(text).unwrap_err();
            assert!(mistake.wrong.contains(wrong), "{text}: {mistake:?}");
        }
    }

    #[test]
    fn shown_values_read_back() {
        for ns in [0, 1, 999, 1_500, 20_000_000, 7_440_000_000_000, u64::MAX] {
            let value = Duration::from_nanos(ns);
            assert_eq!(duration(&show_duration(value)), Ok(value));
        }
        for bytes in [0, 1, 1400, 8 << 20, 3 << 30, u64::MAX] {
            assert_eq!(size(&show_size(bytes)), Ok(bytes));
        }
        assert_eq!(show_count(1_234_567), "1,234,567");
        assert_eq!(show_count(12), "12");
    }

    #[test]
    fn sizes_and_rates() {
        assert_eq!(size("8MiB"), Ok(8 << 20));
        assert_eq!(size("1400 B"), Ok(1400));
        assert!(size("8MB").unwrap_err().instead.contains("8MiB"));
        assert!(size("8").unwrap_err().wrong.contains("no unit"));
        assert!(
            size("99999999999GiB")
                .unwrap_err()
                .wrong
                .contains("too large")
        );
        assert!(size("much").unwrap_err().wrong.contains("not a size"));
        assert_eq!(rate("100/s"), Ok(100));
        assert!(rate("100").unwrap_err().instead.contains("100/s"));
        assert!(rate("100/m").unwrap_err().wrong.contains("per second"));
        assert!(rate("often").is_err());
    }

    #[test]
    fn names() {
        assert!(name("site-a2").is_ok());
        assert!(name("Site A").unwrap_err().instead.contains("site-a"));
        assert!(name("").is_err() && name("-").is_err() && name(&"a".repeat(64)).is_err());
    }
}
