//! A state message on its way through the protocols of a host.

use crate::{Incarnation, MemberId};

use super::{Header, RawFrame, RawFrames, Reader, Reads};

/// A state message, authentic and opened. The replicator is handed it first; the protocols beside it find their frames in it only
/// once the replicator has checked it.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    from: MemberId,
    incarnation: Incarnation,
    bytes: &'a [u8],
    /// It was checked, and has frames of protocols beside the replicator.
    has_beside: bool,
}

impl<'a> Message<'a> {
    /// A message of that member, not checked yet.
    #[must_use]
    pub fn new(from: MemberId, incarnation: Incarnation, bytes: &'a [u8]) -> Message<'a> {
        Message {
            from,
            incarnation,
            bytes,
            has_beside: false,
        }
    }

    /// Who sent it.
    #[must_use]
    pub fn from(&self) -> MemberId {
        self.from
    }

    /// In which incarnation.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Its bytes: the header and all frames.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The replicator checked it, and tells whether it has frames of protocols beside it.
    pub(crate) fn checked(&mut self, has_beside: bool) {
        self.has_beside = has_beside;
    }

    /// The frames that a protocol beside the replicator reads, in their order. Costs nothing where there are none.
    pub(crate) fn frames_of(&self, reads: Reads) -> impl Iterator<Item = RawFrame<'a>> + use<'a> {
        let mut reader = Reader::new(if self.has_beside { self.bytes } else { &[] });
        // The version was checked with the rest.
        let is_read = Header::read(&mut reader, u8::MAX).is_ok();
        let frames = is_read.then(|| RawFrames::new(reader));
        let frames = frames.into_iter().flatten().flatten();
        frames.filter(move |frame| frame.reads == reads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::{KIND_KEEP_ALIVE, KIND_STREAM, WIRE_VERSION, write_frame};
    use crate::{ClusterId, Epoch, Time};

    #[test]
    fn frames_are_found_by_their_reader_once_the_message_is_checked() {
        let mut bytes = Vec::new();
        Header::write(&mut bytes, WIRE_VERSION, ClusterId(1), Epoch(1), Time(5), 9);
        write_frame(&mut bytes, KIND_KEEP_ALIVE, &[1]);
        write_frame(&mut bytes, KIND_STREAM, &[7; 9]);
        let mut message = Message::new(MemberId(2), Incarnation(3), &bytes);
        assert_eq!(message.frames_of(Reads::Audit).count(), 0);
        message.checked(true);
        let frames: Vec<_> = message.frames_of(Reads::Audit).collect();
        assert_eq!(frames.len(), 1);
        assert_eq!((frames[0].kind, frames[0].body), (KIND_STREAM, &[7; 9][..]));
    }
}
