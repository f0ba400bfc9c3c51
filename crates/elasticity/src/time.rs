//! Time as policies use it: moments in UTC that are arguments, and spans that an operator writes as `"90s"` or `"5m"`.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A moment in UTC: milliseconds since 1970-01-01. The caller reads the clock.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixMs(pub u64);

impl UnixMs {
    /// The span since an earlier moment; zero if that moment is later.
    #[must_use]
    pub fn since(self, earlier: UnixMs) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// The moment that follows after a span.
    #[must_use]
    pub fn after(self, span: Span) -> UnixMs {
        UnixMs(self.0.saturating_add(span.0))
    }
}

/// A span of time in milliseconds. Its text is that of the configuration: `"250ms"`, `"90s"`, `"5m"` or `"2h4m"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

/// Units of a span's text with their milliseconds, the greatest first.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

impl Span {
    /// A span of whole seconds.
    #[must_use]
    pub const fn seconds(seconds: u64) -> Span {
        Span(seconds.saturating_mul(1_000))
    }

    /// A span of whole minutes.
    #[must_use]
    pub const fn minutes(minutes: u64) -> Span {
        Span::seconds(minutes.saturating_mul(60))
    }

    /// A span from its text: numbers, each with its unit.
    ///
    /// # Errors
    /// The text is no span; the error is a sentence with examples.
    pub fn parse(text: &str) -> Result<Span, SpanError> {
        let refused = || SpanError(text.chars().take(TEXT_CHARS_SHOWN).collect());
        let mut rest = text;
        let mut total = 0_u64;
        while let Some((number, unit, next)) = first_part(rest) {
            let (_, ms) = UNITS
                .iter()
                .find(|(name, _)| *name == unit)
                .ok_or_else(refused)?;
            let number: u64 = number.parse().map_err(|_| refused())?;
            let part = number.checked_mul(*ms).ok_or_else(refused)?;
            total = total.checked_add(part).ok_or_else(refused)?;
            rest = next;
        }
        if text.is_empty() || !rest.is_empty() {
            return Err(refused());
        }
        Ok(Span(total))
    }
}

/// The number and the unit at the beginning of a text, and what follows them.
fn first_part(text: &str) -> Option<(&str, &str, &str)> {
    let digits = text.find(|sign: char| !sign.is_ascii_digit())?;
    let (number, after) = text.split_at_checked(digits)?;
    let letters = after
        .find(|sign: char| !sign.is_ascii_lowercase())
        .unwrap_or(after.len());
    let (unit, next) = after.split_at_checked(letters)?;
    Some((number, unit, next))
}

/// Characters of a refused text that its error repeats.
const TEXT_CHARS_SHOWN: usize = 32;

/// A text that is no span of time. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no span of time: write numbers with their units, such as \"250ms\", \"90s\", \"5m\" or \"2h4m\""
)]
pub struct SpanError(String);

impl fmt::Display for Span {
    /// The text that [`Span::parse`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.0;
        for (unit, ms) in UNITS {
            if rest >= ms {
                write!(f, "{}{unit}", rest / ms)?;
                rest %= ms;
            }
        }
        Ok(())
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        let text = String::deserialize(deserializer)?;
        Span::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_written() {
        for (text, ms) in [
            ("250ms", 250),
            ("1m30s", 90_000),
            ("5m", 300_000),
            ("2h4m", 7_440_000),
            ("1d", 86_400_000),
            ("0s", 0),
        ] {
            assert_eq!(Span::parse(text), Ok(Span(ms)), "{text}");
            assert_eq!(Span(ms).to_string(), text);
            let json = serde_json::to_string(&Span(ms)).unwrap();
            assert_eq!(serde_json::from_str::<Span>(&json).unwrap(), Span(ms));
        }
        for wrong in [
            "",
            "5",
            "m",
            "5 m",
            "-5s",
            "+5s",
            "5M",
            "5w",
            "5s ",
            "1.5s",
            "99999999999999999d",
            "é5s",
            "5é",
            "18446744073709551615ms1ms",
        ] {
            let refused = Span::parse(wrong).unwrap_err().to_string();
            assert!(refused.contains("90s"), "{refused}");
        }
    }
}
