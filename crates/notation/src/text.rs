//! Text files as editors write them.

/// A text without the leading byte-order mark (U+FEFF) of some editors, which has no meaning in UTF-8.
#[must_use]
pub fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}
