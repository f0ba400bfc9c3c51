//! Finds where a value ends in bytes that come in pieces.

/// Bytes of one string at most; Redis allows 512 MiB.
pub const STRING_BYTES_MAX: usize = 16 << 20;
/// Elements of one array, set or map at most, keys and values of a map counted apart.
pub const ELEMENTS_MAX: usize = 1 << 20;
/// Arrays within arrays at most.
pub const DEPTH_MAX: usize = 8;
/// Bytes of a line at most: a length, a number, a status or an error.
pub const LINE_BYTES_MAX: usize = 4_096;

/// Why bytes are no value of the protocol, or one that is too long. What follows them means nothing: the connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RespError {
    /// A value begins with this byte, which no type has.
    Type(u8),
    /// A length or a number is none.
    Number,
    /// A string does not end with a line end.
    Unterminated,
    /// A line is longer than [`LINE_BYTES_MAX`].
    Line,
    /// A string is longer than [`STRING_BYTES_MAX`].
    String,
    /// An array has more than [`ELEMENTS_MAX`] elements.
    Elements,
    /// Arrays are nested deeper than [`DEPTH_MAX`].
    Depth,
}

impl core::fmt::Display for RespError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Type(byte) => write!(formatter, "no value begins with the byte {byte:#04x}"),
            Self::Number => formatter.write_str("a length or a number is none"),
            Self::Unterminated => formatter.write_str("a string has no line end behind it"),
            Self::Line => write!(formatter, "a line has more than {LINE_BYTES_MAX} bytes"),
            Self::String => write!(formatter, "a string has more than {STRING_BYTES_MAX} bytes"),
            Self::Elements => write!(formatter, "an array has more than {ELEMENTS_MAX} elements"),
            Self::Depth => write!(formatter, "arrays are nested deeper than {DEPTH_MAX}"),
        }
    }
}

impl core::error::Error for RespError {}

/// What the head of a value says: its first byte and its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// It is the line.
    Line,
    /// So many bytes and a line end follow.
    String(usize),
    /// So many values follow.
    Elements(usize),
    /// So many values follow, which say something about the value behind them.
    Attribute(usize),
    /// The null of version 2.
    Null,
}

/// Whether a value may begin with this byte.
fn is_type(kind: u8) -> bool {
    b"+-:_#,($!=*~>%|".contains(&kind)
}

/// Reads the head of a value: `line` is without its first byte and its end.
pub(crate) fn head(kind: u8, line: &[u8]) -> Result<Head, RespError> {
    let elements = |each: usize| match length(line)? {
        None => Ok(None),
        Some(count) if count.saturating_mul(each) <= ELEMENTS_MAX => Ok(Some(count * each)),
        Some(_) => Err(RespError::Elements),
    };
    match kind {
        b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => Ok(Head::Line),
        b'$' | b'!' | b'=' => match length(line)? {
            None => Ok(Head::Null),
            Some(bytes) if bytes <= STRING_BYTES_MAX => Ok(Head::String(bytes)),
            Some(_) => Err(RespError::String),
        },
        b'*' | b'~' | b'>' => Ok(elements(1)?.map_or(Head::Null, Head::Elements)),
        b'%' => Ok(elements(2)?.map_or(Head::Null, Head::Elements)),
        b'|' => elements(2)?.map(Head::Attribute).ok_or(RespError::Number),
        other => Err(RespError::Type(other)),
    }
}

/// A length; `None` for -1.
fn length(line: &[u8]) -> Result<Option<usize>, RespError> {
    match line {
        b"-1" => Ok(None),
        _ => {
            let number = integer(line)?;
            usize::try_from(number)
                .map(Some)
                .map_err(|_| RespError::Number)
        }
    }
}

/// A signed number in decimal digits.
pub(crate) fn integer(line: &[u8]) -> Result<i64, RespError> {
    let digits = line.strip_prefix(b"+").unwrap_or(line);
    let text = core::str::from_utf8(digits).map_err(|_| RespError::Number)?;
    text.parse().map_err(|_| RespError::Number)
}

/// The line that begins at `from`, without its end, and where the next one begins; `None` if its end is not here yet.
pub(crate) fn line(
    bytes: &[u8],
    from: usize,
    searched: usize,
) -> Result<Option<(&[u8], usize)>, RespError> {
    let rest = bytes.get(searched.max(from)..).unwrap_or_default();
    match rest.iter().position(|&byte| byte == b'\n') {
        Some(at) => {
            let end = searched.max(from) + at;
            let line = bytes.get(from..end).unwrap_or_default();
            let line = line.strip_suffix(b"\r").ok_or(RespError::Unterminated)?;
            match line.len() <= LINE_BYTES_MAX {
                true => Ok(Some((line, end + 1))),
                false => Err(RespError::Line),
            }
        }
        None if bytes.len().saturating_sub(from) > LINE_BYTES_MAX + 2 => Err(RespError::Line),
        None => Ok(None),
    }
}

/// Finds the end of one value after the other. What was looked at once is not looked at again, however the bytes are cut.
#[derive(Clone, Debug, Default)]
pub struct Scanner {
    /// Where the next head begins, from the begin of the value.
    at: usize,
    /// Up to where its line end was looked for.
    searched: usize,
    /// A string's bytes that are still to come, with the line end.
    string: usize,
    /// Values still to come, of each array that is open.
    left: [usize; DEPTH_MAX],
    depth: usize,
}

impl Scanner {
    /// One that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The length of the value that `bytes` begin with; `None` if it is not whole yet: come again with the same bytes and more. After
    /// a length, the next call is about the value behind it.
    ///
    /// # Errors
    /// They are no value. The scanner is of no use any more.
    pub fn scan(&mut self, bytes: &[u8]) -> Result<Option<usize>, RespError> {
        loop {
            if self.string > 0 {
                let Some(end) = bytes.get(..self.at + self.string) else {
                    return Ok(None);
                };
                if !end.ends_with(b"\r\n") {
                    return Err(RespError::Unterminated);
                }
                self.at += self.string;
                self.string = 0;
                if self.is_whole() {
                    return Ok(Some(self.finish()));
                }
            }
            let Some(&kind) = bytes.get(self.at) else {
                return Ok(None);
            };
            if !is_type(kind) {
                return Err(RespError::Type(kind));
            }
            let Some((line, next)) = line(bytes, self.at + 1, self.searched)? else {
                self.searched = bytes.len();
                return Ok(None);
            };
            let head = head(kind, line)?;
            self.at = next;
            match head {
                Head::String(length) => {
                    self.string = length + 2;
                    continue;
                }
                Head::Elements(count) if count > 0 => {
                    self.open(count)?;
                    continue;
                }
                Head::Attribute(count) => {
                    // The value that it is about comes behind it.
                    self.open(count + 1)?;
                    continue;
                }
                Head::Line | Head::Null | Head::Elements(_) => {}
            }
            if self.is_whole() {
                return Ok(Some(self.finish()));
            }
        }
    }

    fn open(&mut self, count: usize) -> Result<(), RespError> {
        *self.left.get_mut(self.depth).ok_or(RespError::Depth)? = count;
        self.depth += 1;
        Ok(())
    }

    /// One value is over: whether all that are open are.
    fn is_whole(&mut self) -> bool {
        while let Some(last) = self.depth.checked_sub(1) {
            self.left[last] -= 1;
            if self.left[last] > 0 {
                return false;
            }
            self.depth = last;
        }
        true
    }

    fn finish(&mut self) -> usize {
        let length = self.at;
        *self = Self::default();
        length
    }
}
