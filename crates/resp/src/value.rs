//! A value, as it stands in the bytes that came.

use crate::scan::{DEPTH_MAX, Head, RespError, head, integer, line};

/// A value of the protocol. Commands are arrays of strings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// A status, as `OK`.
    Status(&'a [u8]),
    /// An error: a word in capitals that names its kind, and a sentence.
    Error(&'a [u8]),
    /// A number.
    Integer(i64),
    /// A string of any bytes.
    String(&'a [u8]),
    /// Nothing: a key that there is not, a transaction that was not made.
    Null,
    /// Whether it is so (version 3).
    Boolean(bool),
    /// Several values. A map of version 3 is its keys and values in turn.
    Array(Values<'a>),
    /// Several values that answer nothing: what the other side tells by itself (version 3).
    Push(Values<'a>),
}

/// The values of an array, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    rest: &'a [u8],
    left: usize,
}

impl PartialEq for Values<'_> {
    fn eq(&self, other: &Self) -> bool {
        Iterator::eq(*self, *other)
    }
}

impl<'a> Values<'a> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.left
    }
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}

impl<'a> Iterator for Values<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.left = self.left.checked_sub(1)?;
        // A scanner has seen that they are whole.
        let (value, length) = Value::read(self.rest).ok()??;
        self.rest = self.rest.get(length..)?;
        Some(value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left))
    }
}

impl<'a> Value<'a> {
    /// The value that `bytes` begin with, and its length; `None` if it is not whole yet. Looks at all of it: of what comes in pieces a
    /// [`Scanner`](crate::Scanner) first finds the end.
    ///
    /// # Errors
    /// They are no value.
    pub fn read(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, RespError> {
        // What is said about a value is passed over.
        let Some(about) = attributes(bytes)? else {
            return Ok(None);
        };
        let value = Self::read_plain(bytes.get(about..).unwrap_or_default())?;
        Ok(value.map(|(value, length)| (value, about + length)))
    }

    /// The same of a value without attributes.
    fn read_plain(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, RespError> {
        let Some(&kind) = bytes.first() else {
            return Ok(None);
        };
        let Some((line, next)) = line(bytes, 1, 1)? else {
            return Ok(None);
        };
        let value = match head(kind, line)? {
            Head::Null => Self::Null,
            Head::String(length) => {
                let (from, to) = (next, next + length);
                let Some(string) = bytes.get(from..to) else {
                    return Ok(None);
                };
                let value = match kind {
                    b'!' => Self::Error(string),
                    // Three letters that name the format, and a colon.
                    b'=' => Self::String(string.get(4..).unwrap_or_default()),
                    _ => Self::String(string),
                };
                return match bytes.get(to..to + 2) {
                    Some(b"\r\n") => Ok(Some((value, to + 2))),
                    Some(_) => Err(RespError::Unterminated),
                    None => Ok(None),
                };
            }
            Head::Elements(count) => {
                let Some(length) = length_of(bytes, next, count)? else {
                    return Ok(None);
                };
                let rest = bytes.get(next..next + length).unwrap_or_default();
                let values = Values { rest, left: count };
                let value = match kind {
                    b'>' => Self::Push(values),
                    _ => Self::Array(values),
                };
                return Ok(Some((value, next + length)));
            }
            Head::Attribute(_) => return Err(RespError::Depth),
            Head::Line => match kind {
                b'+' => Self::Status(line),
                b'-' => Self::Error(line),
                b':' => Self::Integer(integer(line)?),
                b'_' => Self::Null,
                b'#' => Self::Boolean(line == b"t"),
                // A number with a fraction, or of many digits: as it is written.
                _ => Self::String(line),
            },
        };
        Ok(Some((value, next)))
    }

    /// Its bytes, if it is a string or a status.
    #[must_use]
    pub fn bytes(&self) -> Option<&'a [u8]> {
        match self {
            Self::String(bytes) | Self::Status(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// Bytes of the attributes that stand before a value, of which there are no more than arrays may be nested.
fn attributes(bytes: &[u8]) -> Result<Option<usize>, RespError> {
    let mut at = 0;
    for _ in 0..DEPTH_MAX {
        if bytes.get(at) != Some(&b'|') {
            return Ok(Some(at));
        }
        let Some((line, next)) = line(bytes, at + 1, at + 1)? else {
            return Ok(None);
        };
        let Head::Attribute(count) = head(b'|', line)? else {
            return Err(RespError::Number);
        };
        let Some(length) = length_of(bytes, next, count)? else {
            return Ok(None);
        };
        at = next + length;
    }
    Ok(Some(at))
}

/// Bytes of so many values from there on.
fn length_of(bytes: &[u8], from: usize, count: usize) -> Result<Option<usize>, RespError> {
    let mut scanner = crate::Scanner::new();
    let mut at = from;
    for _ in 0..count {
        match scanner.scan(bytes.get(at..).unwrap_or_default())? {
            Some(length) => at += length,
            None => return Ok(None),
        }
    }
    Ok(Some(at - from))
}
