//! A line of a scenario in words: what blanks separate, text in quotes, and a comment behind `#`.

use core::ops::Range;
use core::time::Duration;

use asterism_config::diagnostic::Diagnostic;
use asterism_config::value;

/// A word, or text in quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word<'t> {
    /// As it is written, quotes included.
    pub(super) text: &'t str,
    /// What quotes hold; `None` without quotes.
    pub(super) quoted: Option<Vec<u8>>,
    /// Where it stands in the file.
    pub(super) span: Range<usize>,
}

/// The words of a line that begins at this byte of the file.
pub(super) fn split(line: &str, start: usize) -> Result<Vec<Word<'_>>, Diagnostic> {
    let mut words = Vec::new();
    let mut at = 0;
    while let Some(letter) = line[at..].chars().next() {
        if letter.is_whitespace() {
            at += letter.len_utf8();
            continue;
        }
        if letter == '#' {
            break;
        }
        let (length, quoted) = match letter {
            '"' => {
                let (length, bytes) = quoted(&line[at..], start + at)?;
                (length, Some(bytes))
            }
            _ => {
                let end = line[at..].find(|one: char| one.is_whitespace() || one == '"');
                (end.unwrap_or(line.len() - at), None)
            }
        };
        words.push(Word {
            text: &line[at..at + length],
            quoted,
            span: start + at..start + at + length,
        });
        at += length;
    }
    Ok(words)
}

/// Text in quotes at the begin of `rest`: how long it is with them, and the bytes that it means.
fn quoted(rest: &str, start: usize) -> Result<(usize, Vec<u8>), Diagnostic> {
    let mut bytes = Vec::new();
    let mut letters = rest.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Ok((at + 1, bytes)),
            '\\' => {
                let (_, escaped) = letters.next().unwrap_or((at, ' '));
                match escaped {
                    'n' => bytes.push(b'\n'),
                    'r' => bytes.push(b'\r'),
                    't' => bytes.push(b'\t'),
                    '"' | '\\' => bytes.push(escaped as u8),
                    'x' => {
                        let digits = rest.get(at + 2..at + 4);
                        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                        let Some(byte) = byte else {
                            return Err(bad_escape(start + at, 4.min(rest.len() - at)));
                        };
                        bytes.push(byte);
                        letters.next();
                        letters.next();
                    }
                    _ => return Err(bad_escape(start + at, 1 + escaped.len_utf8())),
                }
            }
            letter => bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Err(
        Diagnostic::error("this text has no end", start..start + rest.len())
            .help("close it with \" on the same line"),
    )
}

fn bad_escape(start: usize, length: usize) -> Diagnostic {
    Diagnostic::error("this means no byte", start..start + length)
        .help("write \\n, \\r, \\t, \\\", \\\\, or \\x and two digits of base 16, such as \\x0d")
}

impl Word<'_> {
    /// An error about it.
    pub(super) fn wrong(&self, title: impl Into<String>) -> Diagnostic {
        Diagnostic::error(title, self.span.clone())
    }

    /// A duration.
    pub(super) fn duration(&self) -> Result<Duration, Diagnostic> {
        value::duration(self.text).map_err(|_| {
            self.wrong(format!("`{}` is no duration", self.text))
                .help("write a number and its unit, such as 5ms, 2s or 1m30s")
        })
    }

    /// A whole number.
    pub(super) fn number(&self) -> Result<u64, Diagnostic> {
        let digits = self.text.replace(['_', ','], "");
        digits.parse().map_err(|_| {
            self.wrong(format!("`{}` is no whole number", self.text))
                .help("write a number such as 3 or 1_000")
        })
    }

    /// What it is as bytes: the text in quotes, or the word.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let quoted = self.quoted.clone();
        quoted.unwrap_or_else(|| self.text.as_bytes().to_vec())
    }

    /// The same as text.
    pub(super) fn plain(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }
}

/// Bytes in quotes, as a line would have them.
pub(super) fn show_bytes(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for &byte in bytes {
        match byte {
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
            0x20..0x7f => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_texts_and_comments_are_reported_apart() {
        let words = split("  send a  \"x # \\\"\\x0d\\n\" # that's all", 100).unwrap();
        let texts: Vec<_> = words.iter().map(|word| word.text).collect();
        assert_eq!(texts, ["send", "a", "\"x # \\\"\\x0d\\n\""]);
        assert_eq!(words[2].quoted.as_deref(), Some(&b"x # \"\r\n"[..]));
        assert_eq!(
            (words[0].span.clone(), words[1].span.start),
            (102..106, 107)
        );
        assert_eq!(show_bytes(b"x # \"\r\n\0"), "\"x # \\\"\\r\\n\\x00\"");
        assert_eq!(split("# nothing", 0).unwrap(), []);
        for bad in ["\"open", "\"\\q\"", "\"\\x1\"", "\"\\", "\"\\xé\""] {
            let wrong = split(bad, 0).unwrap_err();
            assert!(!wrong.help.is_empty(), "{bad}");
        }
    }
}
