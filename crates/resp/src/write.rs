//! Commands and replies as bytes.

use std::io::Write;

/// Writes commands behind one another.
#[derive(Debug)]
pub struct CommandWriter<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> CommandWriter<'a> {
    /// Writes behind what is in `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    /// A command of these arguments, its name first.
    pub fn command(&mut self, arguments: &[&[u8]]) {
        self.begin(arguments.len());
        for argument in arguments {
            self.argument(argument);
        }
    }

    /// The head of a command of so many arguments, its name counted; [`CommandWriter::argument`] writes them.
    pub fn begin(&mut self, arguments: usize) {
        head(self.out, b'*', arguments as i64);
    }

    /// The next argument.
    pub fn argument(&mut self, argument: &[u8]) {
        string(self.out, argument);
    }

    /// A number as the next argument.
    pub fn number(&mut self, number: i64) {
        let mut digits = [0; 20];
        let written = decimal(&mut digits, number);
        string(self.out, written);
    }
}

/// Writes replies behind one another, in either version of the protocol.
#[derive(Debug)]
pub struct ReplyWriter<'a> {
    out: &'a mut Vec<u8>,
    is_version_3: bool,
}

impl<'a> ReplyWriter<'a> {
    /// Writes behind what is in `out`.
    pub fn new(out: &'a mut Vec<u8>, is_version_3: bool) -> Self {
        Self { out, is_version_3 }
    }
    /// Whether the client asked for version 3.
    #[must_use]
    pub fn is_version_3(&self) -> bool {
        self.is_version_3
    }

    /// A status, without line ends.
    pub fn status(&mut self, status: &str) {
        self.line(b'+', status.as_bytes());
    }
    /// An error, without line ends.
    pub fn error(&mut self, error: &str) {
        self.line(b'-', error.as_bytes());
    }
    /// A number.
    pub fn integer(&mut self, number: i64) {
        head(self.out, b':', number);
    }
    /// A number with a fraction, as it is written: a string in version 2.
    pub fn double(&mut self, number: &str) {
        match self.is_version_3 {
            true => self.line(b',', number.as_bytes()),
            false => string(self.out, number.as_bytes()),
        }
    }
    /// A string.
    pub fn string(&mut self, bytes: &[u8]) {
        string(self.out, bytes);
    }
    /// Nothing, where a string could be.
    pub fn null(&mut self) {
        self.out.extend(match self.is_version_3 {
            true => &b"_\r\n"[..],
            false => b"$-1\r\n",
        });
    }
    /// Nothing, where an array could be.
    pub fn null_array(&mut self) {
        self.out.extend(match self.is_version_3 {
            true => &b"_\r\n"[..],
            false => b"*-1\r\n",
        });
    }
    /// So many values follow.
    pub fn array(&mut self, count: usize) {
        head(self.out, b'*', count as i64);
    }
    /// So many values follow that answer nothing, which version 3 alone has.
    pub fn push(&mut self, count: usize) {
        head(self.out, b'>', count as i64);
    }
    /// So many pairs of values follow.
    pub fn map(&mut self, pairs: usize) {
        match self.is_version_3 {
            true => head(self.out, b'%', pairs as i64),
            false => head(self.out, b'*', 2 * pairs as i64),
        }
    }

    fn line(&mut self, kind: u8, line: &[u8]) {
        self.out.push(kind);
        let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        self.out.extend(line.iter().map(|byte| match is_end(byte) {
            true => b' ',
            false => *byte,
        }));
        self.out.extend(b"\r\n");
    }
}

fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    head(out, b'$', bytes.len() as i64);
    out.extend_from_slice(bytes);
    out.extend(b"\r\n");
}

fn head(out: &mut Vec<u8>, kind: u8, number: i64) {
    let mut digits = [0; 20];
    out.push(kind);
    out.extend_from_slice(decimal(&mut digits, number));
    out.extend(b"\r\n");
}

/// A number in decimal digits.
fn decimal(digits: &mut [u8; 20], number: i64) -> &[u8] {
    let mut rest = &mut digits[..];
    // Twenty bytes hold every number.
    let _ = write!(rest, "{number}");
    let left = rest.len();
    &digits[..20 - left]
}
