//! An epoch's text in parts: cut at one end, put together at the other.

use asterism_epochs::EPOCH_BYTES_MAX;
use ring::digest::{SHA256, digest};

use crate::message::{PART_BYTES, Part};
use crate::mutant::{self, Mutant};

/// The digest that names a text.
pub(crate) fn digest_of(text: &[u8]) -> [u8; 16] {
    let mut short = [0; 16];
    short.copy_from_slice(&digest(&SHA256, text).as_ref()[..16]);
    short
}

/// The part of a text from this offset on; `None` where it ends.
pub(crate) fn part(epoch: u32, text: &str, digest: [u8; 16], offset: u32) -> Option<Part> {
    let bytes = text.as_bytes().get(offset as usize..)?;
    let bytes = &bytes[..bytes.len().min(PART_BYTES)];
    (!bytes.is_empty()).then(|| Part {
        epoch,
        total: text.len() as u32,
        digest,
        offset,
        bytes: bytes.to_vec(),
    })
}

/// A text that is being put together.
#[derive(Debug)]
pub(crate) struct Assembly {
    pub(crate) epoch: u32,
    pub(crate) digest: [u8; 16],
    total: usize,
    bytes: Vec<u8>,
}

/// What became of a part.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It was not the next one; nothing changed.
    NotNext,
    /// More is to come.
    More,
    /// The whole text.
    Whole(String),
    /// The whole is not what its digest says, or not text: begin again.
    Damaged,
}

impl Assembly {
    /// Begins with a text's first part; `None` if it is not the first or the text would be too long.
    pub(crate) fn begin(part: &Part) -> Option<Assembly> {
        let total = part.total as usize;
        (part.offset == 0 && total <= EPOCH_BYTES_MAX && part.bytes.len() <= total).then(|| {
            Assembly {
                epoch: part.epoch,
                digest: part.digest,
                total,
                bytes: Vec::new(),
            }
        })
    }

    /// Whether the part is of this text.
    pub(crate) fn is_of(&self, part: &Part) -> bool {
        (part.epoch, part.digest, part.total as usize) == (self.epoch, self.digest, self.total)
    }

    /// Where the next part begins.
    pub(crate) fn offset(&self) -> u32 {
        self.bytes.len() as u32
    }

    /// Takes a part of this text.
    pub(crate) fn take(&mut self, part: &Part) -> Taken {
        let is_next = part.offset == self.offset();
        if !is_next || self.bytes.len() + part.bytes.len() > self.total {
            return Taken::NotNext;
        }
        self.bytes.extend_from_slice(&part.bytes);
        if self.bytes.len() < self.total {
            return Taken::More;
        }
        if digest_of(&self.bytes) != self.digest && !mutant::active(Mutant::DigestUnchecked) {
            return Taken::Damaged;
        }
        match String::from_utf8(core::mem::take(&mut self.bytes)) {
            Ok(text) => Taken::Whole(text),
            Err(_) => Taken::Damaged,
        }
    }
}
