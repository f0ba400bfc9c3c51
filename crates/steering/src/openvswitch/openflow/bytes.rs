//! Reading and writing of big-endian numbers, with lengths checked once for all of the codec.

use super::WireError;

/// A cursor over received bytes. A read behind the end is [`WireError::Short`]; no read panics.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    /// What is being read, for errors.
    what: &'static str,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], what: &'static str) -> Reader<'a> {
        Reader { rest: bytes, what }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.rest.len()
    }

    /// What is left.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next bytes, without taking them.
    pub(super) fn peek<const BYTES: usize>(&self, at: usize) -> Result<[u8; BYTES], WireError> {
        self.rest
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .copied()
            .ok_or(WireError::Short(self.what))
    }

    pub(super) fn array<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], WireError> {
        let bytes = self.peek(0)?;
        self.skip(BYTES)?;
        Ok(bytes)
    }

    pub(super) fn u8(&mut self) -> Result<u8, WireError> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(WireError::Short(self.what))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn skip(&mut self, count: usize) -> Result<(), WireError> {
        self.bytes(count).map(|_| ())
    }

    /// A part of so many bytes, read on its own.
    pub(super) fn part(
        &mut self,
        count: usize,
        what: &'static str,
    ) -> Result<Reader<'a>, WireError> {
        self.bytes(count).map(|bytes| Reader::new(bytes, what))
    }

    /// A part whose length, which counts itself, stands `at` bytes behind its beginning; at least `least` bytes long, and
    /// followed by zeros up to a multiple of `align`.
    pub(super) fn counted(
        &mut self,
        at: usize,
        least: usize,
        align: usize,
        what: &'static str,
    ) -> Result<Reader<'a>, WireError> {
        let length = usize::from(self.peek(at).map(u16::from_be_bytes)?);
        if length < least {
            return Err(WireError::Length { what, length });
        }
        let part = self.part(length, what)?;
        self.skip(length.next_multiple_of(align) - length)?;
        Ok(part)
    }
}

/// Bytes that are being made, with lengths filled in at the end of what they count.
#[derive(Debug, Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.bytes.extend(value.to_be_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.bytes.extend(value.to_be_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.bytes.extend(value.to_be_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    pub(super) fn zeros(&mut self, count: usize) {
        self.bytes.resize(self.bytes.len() + count, 0);
    }

    /// Text in a field of `field` bytes, the last of which is a zero.
    pub(super) fn text(&mut self, text: &str, field: usize) -> Result<(), WireError> {
        if text.len() >= field || text.contains('\0') {
            return Err(WireError::Text(text.to_owned()));
        }
        self.bytes(text.as_bytes());
        self.zeros(field - text.len());
        Ok(())
    }

    /// Zeros until what began at `start` has a multiple of `align` bytes.
    pub(super) fn align(&mut self, start: usize, align: usize) {
        let length = self.len() - start;
        self.zeros(length.next_multiple_of(align) - length);
    }

    /// Writes, `at` bytes into what began at `start`, how long it has become.
    pub(super) fn count(
        &mut self,
        start: usize,
        at: usize,
        what: &'static str,
    ) -> Result<(), WireError> {
        let length = self.len() - start;
        self.set_u16(start + at, length, what)
    }

    /// Overwrites a length.
    pub(super) fn set_u16(
        &mut self,
        place: usize,
        length: usize,
        what: &'static str,
    ) -> Result<(), WireError> {
        let number = u16::try_from(length).map_err(|_| WireError::Long { what, length })?;
        if let Some(field) = self.bytes.get_mut(place..place + 2) {
            field.copy_from_slice(&number.to_be_bytes());
        }
        Ok(())
    }
}
